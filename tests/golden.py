"""Expected reports of every bundled host: `python -m tests.golden --update` rewrites them, a test compares.

For each directory fixtures/hosts/NAME: golden/report.txt and golden/report.json, over the same judgement; for single
outputs (OUTPUTS) fixtures/golden/NAME.txt and .json. The version, the time taken and the path are not part of a
report's meaning and are replaced.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from gpudoctor import __version__
from tests.support import FIXTURES, ROOT

if TYPE_CHECKING:
    from gpudoctor.ingest import Intake

HOSTS = FIXTURES / "hosts"
GOLDEN = FIXTURES / "golden"
# Single outputs whose whole report is held, by folder and name in fixtures/outputs.
OUTPUTS = (
    "dcgm/diag-3.3-h100x8-passes.txt", "dcgm/diag-4.4-a100x4-three-faults.txt", "dcgm/health-two-gpus.txt", "p2p-test/h100x4-one-slow-pair.txt",
    "p2p-test/rtx4090x2-no-peer-access.txt",
)  # fmt: skip


def names() -> list[str]:
    return sorted(p.name for p in HOSTS.iterdir() if (p / "manifest.json").is_file())


def produce(name: str) -> dict[str, str]:
    """File name -> content, as the program would print it for this host."""
    from gpudoctor.cli.look import look

    return _reports(look((str(HOSTS / name),), live=False, job=False, timeout=60).intake, name)


def of_output(name: str) -> dict[str, str]:
    """The same for one of OUTPUTS: `dcgm-health-two-gpus.txt` and `.json`. Read under its short name, since lines break by it."""
    from gpudoctor.ingest import take
    from gpudoctor.read.source import Document

    content = (FIXTURES / "outputs" / name).read_bytes()
    flat = name.removesuffix(".txt").replace("/", "-")
    made = _reports(take((), [Document(name=name, chunks=lambda: iter([content]))]), name)
    return {file.replace("report", flat): text for file, text in made.items()}


def _reports(intake: Intake, name: str) -> dict[str, str]:
    from gpudoctor.discover import load
    from gpudoctor.judge import judge
    from gpudoctor.record import replace
    from gpudoctor.report import jsonout, text

    report = judge(intake, load(), {"kind": "recorded", "paths": [name]})
    envelope = jsonout.envelope(report)
    envelope["tool"]["version"] = "VERSION"
    shown = text.render(replace(report, seconds=0.0)).splitlines()
    shown[0] = shown[0].replace(__version__, "x.y.z", 1)
    return {
        "report.txt": "\n".join(shown) + "\n",
        "report.json": json.dumps(envelope, indent=1, ensure_ascii=False) + "\n",
    }


README_HOST = "a100x4-sxm-gpu2-nvlinks-down"
_SESSION = re.compile(rf"(\$ gpudoctor check --from fixtures/hosts/{README_HOST}\n)(.*?)(\n```)", re.S)


def session() -> str:
    """What README's session shows: the real output, the time of one run as it was."""
    from tests.support import gpudoctor

    done = gpudoctor("check", "--from", f"fixtures/hosts/{README_HOST}", cwd=ROOT)
    return done.stdout.decode().rstrip("\n")


def in_readme() -> str:
    found = _SESSION.search((ROOT / "README.md").read_text())
    assert found, "README.md has no session"
    return found[2]


def catalogue() -> str:
    """CHECKS.md: the catalogue as a page."""
    from gpudoctor.discover import load
    from gpudoctor.policy.cause import with_policy
    from gpudoctor.report.catalogue import markdown

    return markdown(with_policy(load()))


def main() -> None:
    if "--readme" in sys.argv:
        page = (ROOT / "README.md").read_text()
        (ROOT / "README.md").write_text(_SESSION.sub(lambda m: m[1] + session() + m[3], page))
        return
    if "--catalogue" in sys.argv:
        (ROOT / "CHECKS.md").write_text(catalogue())
        return
    if "--update" in sys.argv:
        for output in OUTPUTS:
            for file, content in of_output(output).items():
                (GOLDEN / file).write_text(content)
    for name in names():
        folder = HOSTS / name / "golden"
        made = produce(name)
        if "--update" in sys.argv:
            folder.mkdir(exist_ok=True)
            for file, content in made.items():
                (folder / file).write_text(content)
        else:
            same = all((folder / f).is_file() and (folder / f).read_text() == c for f, c in made.items())
            print(f"{'same   ' if same else 'differs'} {name}")


if __name__ == "__main__":
    main()
