"""A folder of played tools that answer as one sound host with two H200, and one or several of them sick.

The answers are recorded ones (fixtures/hosts/h200x2-vm), with the lspci of the same machine and a made-up service.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from gpudoctor.collect.probes import PROBES
from tests.faults.table import BY_ID
from tests.support import FIXTURES, ROOT

PLAYER = Path(__file__).with_name("player.py")
SITE = Path(__file__).with_name("site")
FAKES = ROOT / "tests" / "fakes"
HOST = FIXTURES / "hosts" / "h200x2-vm"
ANSWERS = {
    **{p.id: f for p in PROBES if (f := next(HOST.glob(f"{p.id}.[ojx]*"), None)) is not None},
    "lspci": FIXTURES / "outputs" / "lspci" / "h200x2-vm-vv.txt",
    "fabricmanager": FAKES / "host" / "fabricmanager.out",
}
TOOLS = tuple(dict.fromkeys(p.argv[0] for p in PROBES if p.argv[0] != "{python}"))
CHILDREN = tuple(p.id for p in PROBES if p.argv[0] == "{python}")
SMI = tuple(p.id for p in PROBES if p.argv[0] == "nvidia-smi")
GROUPS = {"nvidia-smi": SMI, "the driver": (*SMI, "nvml")}  # programs that are sick together
BENCH, TORCH = "all_reduce_perf", "python"


class Stage:
    """The folder of one run. `program`: a probe's id, one of GROUPS, BENCH, TORCH; or nothing, where all are well."""

    def __init__(self, folder: Path, program: str = "", fault: str = "", answers: dict[str, Path] | None = None) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.children = folder / "children"
        self.tmp = folder / "tmp"
        for place in (self.bin, self.children, self.tmp):
            place.mkdir(parents=True)
        self.answers = {**ANSWERS, **(answers or {})}
        sick = dict.fromkeys(GROUPS.get(program, (program,)), fault) if program else {}
        broken = fault in BY_ID and BY_ID[fault].whole
        for tool in TOOLS:
            probes = [p for p in PROBES if p.argv[0] == tool]
            if broken and any(p.id in sick for p in probes):
                breakage(self.bin / tool, fault)
                continue
            cases = "".join(
                f"{shlex.quote(' '.join(p.argv[1:]))}) {self._answer(p.id, sick.get(p.id))};;\n" for p in probes
            )
            script(self.bin / tool, f'case "$*" in\n{cases}esac\nexit 9\n')
        for child in CHILDREN:
            script(self.children / child, self._answer(child, sick.get(child)) + "\n")
        self._bench(sick.get(BENCH))
        self._torch(sick.get(TORCH))

    def _answer(self, probe: str, fault: str | None) -> str:
        path = shlex.quote(str(self.answers[probe]))
        return f"exec {play(fault)} {path}" if fault else f"exec /bin/cat {path}"

    def _bench(self, fault: str | None) -> None:
        """all_reduce_perf: -h is answered well, the run itself is sick."""
        honest = f"{sys.executable} -SE {FAKES / 'nccl_tests' / BENCH}"
        path = self.bin / BENCH
        if fault in BY_ID and BY_ID[fault].whole:
            breakage(path, fault)
        elif fault:
            table = self.folder / "table.txt"
            script(path, f'test "$1" = -h && exec {honest} -h\n{honest} "$@" >{table}\nexec {play(fault)} {table}\n')
        else:
            script(path, f'exec {honest} "$@"\n')

    def _torch(self, fault: str | None) -> None:
        """A Python on PATH: whether it has PyTorch is answered by what it prints to nobody and its status."""
        path = self.bin / "python3"
        if fault in BY_ID and BY_ID[fault].whole:
            breakage(path, fault)
        elif fault:
            script(path, f"exec {play(fault)} {self.answers['fabricmanager']}\n")
        else:
            script(path, "exit 9\n")  # a Python without PyTorch

    def env(self) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "PYTHONPATH": f"{SITE}:{ROOT}",
            "FAULT_CHILDREN": str(self.children),
            "TMPDIR": str(self.tmp),
            "HOME": str(self.folder),
        }


def play(fault: str) -> str:
    return f"{sys.executable} -SE {PLAYER} {fault}"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def breakage(path: Path, fault: str) -> None:
    """A fault of the file itself."""
    if fault == "barred":
        path.write_text("#!/bin/sh\n")
        path.chmod(0o644)
    elif fault == "folder":
        path.mkdir()
    elif fault == "foreign":
        path.write_bytes(b"\x7fELF\x02 of no machine here")
        path.chmod(0o755)
    elif fault == "interpreter":
        path.write_text("#!/no/such/interpreter\n")
        path.chmod(0o755)
    elif fault != "absent":
        raise ValueError(fault)


def bare(env: dict[str, str]) -> dict[str, str]:
    """An environment that has nothing of ours or of this machine's jobs in it."""
    kept = {"LANG", "LD_LIBRARY_PATH", "SYSTEMROOT"}
    return {**{k: v for k, v in os.environ.items() if k in kept}, **env}
