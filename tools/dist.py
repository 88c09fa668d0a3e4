"""Builds the source archive and the wheel, the same bytes from the same commit: `python -m tools.dist FOLDER`.

Built from a copy of what git knows (an unpacked source archive: of all that is there), so that neither leftovers of
earlier builds nor files lying about get in. The manual pages are made here and are in both.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools import man

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> str | None:
    """What git says of the checkout; None where this is none."""
    if not (ROOT / ".git").exists():
        return None
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True, text=True).stdout


def moment() -> int:
    """Seconds since 1970 that every file in the archives bears: of the last commit, or as SOURCE_DATE_EPOCH says."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    return int(given) if given else int((ROOT / "setup.cfg").stat().st_mtime)


def export(target: Path) -> None:
    """The sources, with nothing of this machine's: no other files, no modes beyond `may be run`."""
    listed = git("ls-files", "-z")
    if listed is None:
        ignore = shutil.ignore_patterns(".venv*", "build", "*.so", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, target, ignore=ignore)
    else:
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target / name)
    shutil.rmtree(target / "share", ignore_errors=True)
    man.write(target / "share")
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def settle(archive: Path, seconds: int) -> None:
    """A source archive once more, in order and without this machine's clock and users (setuptools leaves them in)."""
    out = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry in sorted(old.getmembers(), key=lambda m: m.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.pax_headers = seconds, 0, 0, "", "", {}
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    with archive.open("wb") as stream, gzip.GzipFile("", "wb", 9, stream, mtime=seconds) as packed:
        packed.write(out.getvalue())


def build(folder: Path) -> list[Path]:
    seconds = moment()
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds), "GPUDOCTOR_PURE": "1"}  # a wheel for every machine
    os.umask(0o022)  # modes of what setuptools makes itself
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name, "source"), Path(name, "made")
        export(source)
        subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(source)], check=True,
                       env=env, stdout=subprocess.DEVNULL)  # fmt: skip
        for archive in made.glob("*.tar.gz"):
            settle(archive, seconds)
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(path, folder)) for path in sorted(made.iterdir())]


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
