"""Which Python has PyTorch: the one named, that of the active environment, the first on PATH, gpudoctor's own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

from gpudoctor.bandwidth.work import CannotStart
from gpudoctor.collect.capture import Probe
from gpudoctor.collect.runner import run

_ASK = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('torch') else 9)"
_ASK_S = 20.0
_ANSWER = 1 << 16  # bytes: there is none


def find(named: str | None, environ: Mapping[str, str], until: float | None = None) -> str:
    """Raises CannotStart with the command that would install PyTorch. until (time.monotonic): ask nobody any longer."""
    if named is not None:
        path = named if "/" in named else shutil.which(named, path=environ.get("PATH"))
        if path is None or not os.access(path, os.X_OK):
            raise CannotStart(f"--python {named}: no such program")
        return path
    tried = candidates(environ)
    for path in tried:
        if has_torch(path, environ, until):
            return path
    best = tried[0]
    raise CannotStart(
        f"neither nccl-tests nor a Python with PyTorch was found (tried {', '.join(tried)}). Name a Python that has PyTorch with "
        f"--python PATH, or nccl-tests with --nccl-tests DIR, or install PyTorch:  {best} -m pip install torch"
    )


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Interpreters that may have PyTorch: the active environment's first, ours last."""
    folders = [os.path.join(environ[name], "bin") for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    found = [os.path.join(folder, "python") for folder in folders]
    found += [p for p in (shutil.which(name, path=environ.get("PATH")) for name in ("python3", "python")) if p]
    found.append(sys.executable)
    out: list[str] = []
    for path in found:
        # By the path as it is called: two environments may link to one interpreter.
        if path not in out and os.access(path, os.X_OK):
            out.append(path)
    return out


def has_torch(python: str, environ: Mapping[str, str], until: float | None = None) -> bool:
    """Asks without importing it, which takes seconds. It may be any program of that name, so it is run as a probe is."""
    probe = Probe(id="torch", argv=(python, "-c", _ASK), kind=None, shown=python)
    return run([(probe, _ASK_S)], until, max_output=_ANSWER, environ=environ)[0].status == "ok"
