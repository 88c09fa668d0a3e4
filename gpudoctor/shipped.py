"""What comes with the program: the tables in `data/`, and the child programs in `probe/`.

Both may lie in one file (gpudoctor.pyz), out of which Python imports and nothing else can read. There the sources stand
at the top, and a folder beside them (`py3.12`) has them compiled for the Python that runs now.
"""

from __future__ import annotations

import os
from typing import Any

_OWN = os.path.dirname(os.path.abspath(__file__))  # in a file of one piece: the compiled modules
_LOADER: Any = __spec__.loader
# The file this program runs from; None where it is a folder like any other installed package.
ARCHIVE: str | None = os.path.abspath(_LOADER.archive) if hasattr(_LOADER, "archive") else None
_PACKAGE = os.path.join(ARCHIVE, "gpudoctor") if ARCHIVE else _OWN
# What `python FILE` does, for a file inside another: its folder leads the path, and it is the main module.
_START = (
    "import runpy, sys; at = int(sys.argv[1]) + 2; sys.path[:] = sys.argv[2:at] + [p for p in sys.path if p]; "
    "name = sys.argv[at]; sys.argv[:] = sys.argv[at:]; runpy.run_module(name, run_name='__main__', alter_sys=True)"
)


def text(name: str) -> str:
    """One file of `data/` as it stands."""
    folder = os.path.join("gpudoctor", "data") if ARCHIVE else os.path.join(_PACKAGE, "data")
    content: bytes = _LOADER.get_data(os.path.join(folder, name))
    return content.decode("utf-8")


def rows(name: str) -> list[str]:
    """Its lines without comments and empty ones."""
    return [line for line in text(name).split("\n") if line and not line.startswith("#")]


def names(folder: str) -> list[str]:
    """The files in one folder of `data/`, sorted."""
    if ARCHIVE is None:
        return sorted(os.listdir(os.path.join(_PACKAGE, "data", folder)))
    from zipfile import ZipFile  # slow to import, and asked for seldom

    with ZipFile(ARCHIVE) as archive:
        inside = [n for n in archive.namelist() if n.startswith(f"gpudoctor/data/{folder}/")]
    return sorted(os.path.basename(name) for name in inside)


def child(python: str, name: str, own: bool = False) -> list[str]:
    """The words that run one child program. own: `python` is the one that runs us, so that it may use what comes with us."""
    if ARCHIVE is None:
        return [python, os.path.join(_PACKAGE, "probe", f"{name}.py")]
    folders = [os.path.join(_PACKAGE, "probe")]
    if own:  # compiled ones first, and the packages that NVML and udev are asked with
        folders = [os.path.join(_OWN, "probe"), *folders, os.path.dirname(_OWN), ARCHIVE]
    return [python, "-c", _START, str(len(folders)), *folders, name]
