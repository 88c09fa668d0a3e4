"""Expected reports of every bundled host: `python -m tests.golden --update` rewrites them, a test compares.

For each directory fixtures/hosts/NAME: golden/report.txt and golden/report.json, over the same judgement. The version,
the time taken and the path are not part of a report's meaning and are replaced.
"""

from __future__ import annotations

import json
import re
import sys

from gpudoctor import __version__
from tests.support import FIXTURES, ROOT

HOSTS = FIXTURES / "hosts"


def names() -> list[str]:
    return sorted(p.name for p in HOSTS.iterdir() if (p / "manifest.json").is_file())


def produce(name: str) -> dict[str, str]:
    """File name -> content, as the program would print it for this host."""
    from gpudoctor.cli.look import look
    from gpudoctor.discover import load
    from gpudoctor.judge import judge
    from gpudoctor.record import replace
    from gpudoctor.report import jsonout, text

    seen = look((str(HOSTS / name),), live=False, job=False, timeout=60)
    report = judge(seen.intake, load(), {"kind": "recorded", "paths": [name]})
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
