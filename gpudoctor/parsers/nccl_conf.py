"""Lines of an environment (`env`, `export -p`) or of nccl.conf to Settings.

An environment holds secrets, so only names on a list are read, and a value that looks like a secret is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.read.section import Section, Unparsable

_ROW = re.compile(r"""^\s*(?:export\s+|declare\s+-x\s+)?([A-Z][A-Z0-9_]*)\s*=\s*("[^"]*"|'[^']*'|\S*)\s*;?\s*(?:\#.*)?$""")
# DeepSpeed's launcher names what it found in the environment, the node's rank first, with a blank in older releases.
_LAUNCHED = re.compile(r"\[launch\.py:\d+:main\] \d+ ([A-Z][A-Z0-9_]*)[ =](\S+)\s*$")
# NCCL's own words of a setting that it found; behind a number it puts a full stop.
_FOUND = re.compile(r"^\s*(NCCL_[A-Z0-9_]+) set by environment to (\S+?)\.?\s*$")
# NCCL's files are no shell: the name is all before the first `=` as it stands, blanks and `export` included, the value all
# behind it, quotes included (src/misc/param.cc, setEnvFile).
_FILE_ROW = re.compile(r"^([A-Z][A-Z0-9_]*)=(.*)$")
_ALLOWED = re.compile(
    r"^(?:NCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES|OMP_NUM_THREADS)$"
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH")
_SECRET_VALUE = re.compile(r"://[^/\s]*@|(?:^|[^A-Za-z])(?:hf|ghp|sk|xox[bp])[_-][A-Za-z0-9]{16,}")
_MAX_VALUE = 400
HIDDEN = "(hidden)"
_NOT_READ = "NCCL takes the name up to `=` as it stands, so a line with a blank or `export` in it sets nothing"


def parse(section: Section) -> Iterator[Fact | Loss]:
    scope = _scope(section)
    is_file = scope != "environment"
    indent = min((_indent(line.text) for line in section if line.text.strip()), default=0)
    found: dict[str, Setting] = {}
    lost = False
    for line in section:
        row = _ROW.match(line.text) or _LAUNCHED.search(line.text) or _FOUND.match(line.text)
        if is_file:
            taken = _FILE_ROW.match(line.text[indent:].rstrip("\r"))
            if taken is None and row is not None and _ALLOWED.match(row[1]) and not line.cut:
                yield Loss(f"the setting {row[1]}", f"{section.source}, line {line.number}: {_NOT_READ}")
                lost = True
            row = taken
        if row is None or not _ALLOWED.match(row[1]):
            continue
        name, value = row.groups()
        quoted = not is_file and len(value) > 1 and value[0] in "'\"" and value[0] == value[-1]
        if line.cut and not quoted and (is_file or not line.text[-1].isspace()):
            yield Loss(f"the value of {name}", f"{section.source}, line {line.number}: cut off")
            lost = True
            continue
        value = value[1:-1] if quoted else value
        value = kept(name, value) or ""
        # The last line of a name wins in a shell; in a file of NCCL's the first does, for it sets only what is not set.
        if not (is_file and name in found):
            found[name] = Setting(name=name, value=value, scope=scope, origin={"*": section.at(line, f"{name}={value}")})
    if not found and not lost:
        raise Unparsable(f"{section.source}: no setting of NCCL or CUDA")
    if found:
        yield Settings(tuple(found.values()))


def kept(name: str, value: str) -> str | None:
    """What may be kept of a variable: its value, HIDDEN for what looks like a secret, None for a name that is not read."""
    if not _ALLOWED.match(name):
        return None
    return HIDDEN if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value) or len(value) > _MAX_VALUE else value


def _indent(line: str) -> int:
    """Blanks before the text: what all lines have in common is the paste's, not the file's."""
    return len(line) - len(line.lstrip())


def _scope(section: Section) -> str:
    """The file that was shown, told by the command or by the path that was given."""
    for words in ((section.command or "").split(), [section.source]):
        for word in words:
            if word.endswith("/.nccl.conf"):
                return "~/.nccl.conf"
            if word.endswith("/etc/nccl.conf"):
                return "/etc/nccl.conf"
    return "environment"
