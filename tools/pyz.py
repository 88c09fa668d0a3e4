"""Builds gpudoctor.pyz: the program and its packages in one file that any Python 3.10 or newer runs without installing.

    python -m tools.pyz WHEEL OUTPUT [PYTHON ...]

Sources lie at the top of the archive. For each PYTHON (and the one that runs this) a folder beside them has every module
compiled, which spares it two thirds of the start; other Pythons compile as they go. Nothing is ever unpacked: a tool that
only looks at a host leaves no cache on it either. The same inputs give the same bytes (SOURCE_DATE_EPOCH, or 1980).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "pyz.txt"
# Of a wheel's metadata: what a licence asks for, and what plugins are found by.
KEPT = re.compile(r"^[^/]+\.dist-info/(METADATA|entry_points\.txt|LICEN[CS]E[^/]*|COPYING[^/]*|licenses/.+)$")
MAIN = '''"""Chooses the modules compiled for the Python that runs now, and starts gpudoctor."""
import sys

if sys.version_info < (3, 10):
    sys.exit("gpudoctor needs Python 3.10 or newer, and this is %d.%d (another: python3.12 FILE ...)" % sys.version_info[:2])
if sys.version_info[:2] in COMPILED and sys.implementation.name == "cpython":
    sys.path.insert(0, "%s/py%d.%d" % (sys.path[0], *sys.version_info[:2]))
from gpudoctor.__main__ import main

main()
'''
# Runs in the Python compiled for; unchecked, since source and code are of one build.
COMPILE = """
import os, py_compile, sys
source, target = sys.argv[1:]
for folder, folders, names in os.walk(source):
    folders.sort()
    for name in sorted(names):
        if name.endswith(".py"):
            path = os.path.relpath(os.path.join(folder, name), source)
            py_compile.compile(os.path.join(source, path), os.path.join(target, path + "c"), path, True,
                               invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
print("%d.%d" % sys.version_info[:2])
"""


def install(wheel: Path, target: Path) -> None:
    """The wheel and its packages. Only wheels without machine code, by their hashes, whatever machine this is."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    pip += ["--target", str(target), "--only-binary", ":all:"]
    anywhere = ["--python-version", "3.10", "--implementation", "py", "--abi", "none", "--platform", "any"]
    subprocess.run([*pip, *anywhere, "--require-hashes", "--requirement", str(PINS)], check=True)
    subprocess.run([*pip, str(wheel)], check=True)


def wanted(path: str) -> bool:
    first = path.partition("/")[0]
    if first.endswith(".dist-info"):
        return bool(KEPT.match(path))
    return first not in ("bin", "share", "example.py", "example.pyc") and "__pycache__" not in path


def files(folder: Path) -> Iterator[str]:
    yield from sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def compile_for(python: str, source: Path, target: Path) -> str:
    """Every module compiled by that Python; its version."""
    # The seed decides in which order a set of constants is stored.
    run = subprocess.run(
        [python, "-S", "-s", "-c", COMPILE, str(source), str(target)],
        check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    return run.stdout.strip()


def pack(tree: Path, output: Path, pythons: Sequence[str]) -> tuple[str, ...]:
    """One folder of modules and metadata as one file that runs; the versions it was compiled for."""
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH") or 0), 315532800))[:6]
    with tempfile.TemporaryDirectory() as work:
        compiled: dict[str, Path] = {}
        for number, python in enumerate(dict.fromkeys(pythons)):
            target = Path(work, str(number))
            compiled.setdefault(compile_for(python, tree, target), target)
        versions = tuple(sorted(compiled, key=lambda v: int(v.partition(".")[2])))
        main = MAIN.replace("COMPILED", "(" + "".join(f"({v.replace('.', ', ')}), " for v in versions) + ")")
        with output.open("wb") as stream:
            stream.write(b"#!/usr/bin/env python3\n")
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

                def add(path: str, content: bytes) -> None:
                    entry = zipfile.ZipInfo(path, moment)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    entry.external_attr = 0o100644 << 16
                    archive.writestr(entry, content)

                add("__main__.py", main.encode())
                for path in filter(wanted, files(tree)):
                    add(path, (tree / path).read_bytes())
                for version in versions:
                    for path in filter(wanted, files(compiled[version])):
                        add(f"py{version}/{path}", (compiled[version] / path).read_bytes())
    output.chmod(0o755)
    return versions


def main() -> None:
    wheel, output, *pythons = sys.argv[1:]
    with tempfile.TemporaryDirectory() as tree:
        install(Path(wheel), Path(tree))
        versions = pack(Path(tree), Path(output), (sys.executable, *pythons))
    print(f"{output}: {Path(output).stat().st_size / 1e6:.1f} MB, compiled for Python {', '.join(versions)}")


if __name__ == "__main__":
    main()
