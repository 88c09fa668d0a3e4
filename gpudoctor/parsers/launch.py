"""Commands with settings (`NCCL_P2P_DISABLE=1 ./all_reduce_perf …`, `mpirun -x NAME=VALUE …`) to Launches.

Only what stands where a command stands is one: at a prompt, or as the first of its line, with a program behind the
settings. A sentence that mentions a setting starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.facts.bandwidth import COLLECTIVES
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.launch import UNSET, Launch, Launches
from gpudoctor.parsers.nccl_conf import HIDDEN, kept
from gpudoctor.read.section import Line, Section

_LONGEST = 4000  # characters
_PROMPT = re.compile(r"^\s*(?:>\s)*(?:\([\w.-]{1,40}\)\s)?(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[\s:][^$#%\n]{0,120}[$#%]|[$#+>]|\d{1,5}\$)\s+")
_DRESS = re.compile(r"\*\*|^\s*`{1,3}(?=\S)|`{1,3}\s*$")
_ASSIGNS = re.compile(r"^([A-Z_][A-Z0-9_]*)=(.*)$")
# What passes a setting on: `-x N=V` of mpirun, `-e N=V` of docker, `--env=N=V`, `--export=ALL,N=V` of srun.
_OPTION = re.compile(r"^(?:-x|-e|--env|-genv|-env|--export(?:=.*)?|--env=.*|-[xe][A-Z_][A-Z0-9_]*=.*)$")
_WRAPPERS = frozenset(("env", "sudo", "-E", "time", "nohup", "exec", "command"))
_LAUNCHERS = (
    r"torchrun|python[\d.]*|deepspeed|accelerate|mpirun|mpiexec(?:\.\w+)?|orterun|prterun|prun|srun|sbatch|horovodrun|docker|podman|nerdctl|kubectl"
    r"|singularity|apptainer|enroot|vllm|sglang|swift|llamafactory-cli|axolotl|bash|sh|numactl|taskset|timeout|nsys|uv|ray|xtuner|trtllm-\w+"
)
_PROGRAM = re.compile(rf"^(?:(?:\S*/)?(?:(?:{'|'.join(COLLECTIVES)})_perf(?:_mpi)?|{_LAUNCHERS})|\.{{0,2}}/\S+|\S+\.(?:sh|py))$")
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_STEP = re.compile(r"\s*(?:;|&&|\|\|)\s*")


def parse(section: Section) -> Iterator[Fact | Loss]:
    launches = tuple(read(section, section.lines))
    if launches:
        yield Launches(launches)


def read(section: Section, lines: Iterable[Line]) -> Iterator[Launch]:
    """Every command among these lines; one without settings too, since it begins a run of its own."""
    for line in lines:
        if line.cut or len(line.text) > _LONGEST:
            continue  # a command in the very last line has printed nothing, and may end in mid-value
        bare = _DRESS.sub("", line.text)
        prompt = _PROMPT.match(bare)
        text = bare[prompt.end() :] if prompt else bare.strip()
        for step in _STEP.split(text):
            launch = _of(section, line, step, prompt is not None)
            if launch is not None:
                yield launch


def _of(section: Section, line: Line, step: str, typed: bool) -> Launch | None:
    words = [word.group() for word in _WORD.finditer(step)]
    goes_on = bool(words) and words[-1].endswith("\\")
    words = [bare for word in words if (bare := word.rstrip("\\"))]
    settings: dict[str, str] = {}
    if words and words[0] in ("export", "unset"):
        for word in words[1:]:
            _take(settings, word if words[0] == "export" else f"{word}={UNSET}")
        return _launch(section, line, settings, lasting=True) if settings else None
    while words and (words[0] in _WRAPPERS or _ASSIGNS.match(words[0])):
        _take(settings, words.pop(0))
    program = bool(words) and _PROGRAM.match(words[0]) is not None
    option = bool(words) and _OPTION.match(words[0]) is not None
    if not (program or goes_on and (settings or option) or option and _ends_one(words)):
        return None
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if before in ("-genv", "-env") and place + 1 < len(words) and "=" not in word:
            _take(settings, f"{word}={words[place + 1]}")
        elif word.startswith("--export=") or before == "--export":
            for part in word.removeprefix("--export=").split(","):
                _take(settings, part)
        else:
            _take(settings, re.sub(r"^(?:--env=|-[xe](?=[A-Z]))", "", word))
    return _launch(section, line, settings, goes_on=goes_on)


def _launch(section: Section, line: Line, settings: dict[str, str], lasting: bool = False, goes_on: bool = False) -> Launch:
    shown = " ".join(f"{name}={value}" for name, value in settings.items() if value not in (UNSET, HIDDEN))
    origin = {"*": section.at(line, shown or "a command")}
    return Launch(source=section.source, line=line.number, settings=settings, lasting=lasting, open=goes_on, origin=origin)


def _ends_one(words: list[str]) -> bool:
    """The last line of a command that was broken: behind the options stands the program, or an image and its options."""
    return any(_PROGRAM.match(word) or "/" in word or word.startswith("--") for word in words[1:])


def _take(settings: dict[str, str], word: str) -> None:
    found = _ASSIGNS.match(word.strip("\"'"))
    if found is None:
        return
    value = found[2]
    if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]:
        value = value[1:-1]
    shown = kept(found[1], value)
    if shown is not None and not value.startswith("$"):
        settings[found[1]] = shown
