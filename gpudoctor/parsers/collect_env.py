"""`python -m torch.utils.collect_env` (and vLLM's longer form of it) to Driver, Software and Gpus.

Its lscpu and topology parts are sections of their own. On Linux its list of GPUs is `nvidia-smi -L` without the UUIDs
(torch/utils/collect_env.py, get_gpu_info), so the numbers are nvidia-smi's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus
from gpudoctor.facts.system import Software
from gpudoctor.parsers.kernel_name import wsl_of
from gpudoctor.read.section import Line, Section, Unparsable

_DRIVER = re.compile(r"^\s*Nvidia driver version\s*:\s*(\d+(?:\.\d+)+)\s*$")
_TORCH = re.compile(r"^\s*PyTorch version\s*:\s*(\d\S*)\s*$")
_CUDA = re.compile(r"^\s*CUDA used to build PyTorch\s*:\s*(\d+\.\d+)\s*$")
_PACKAGE = re.compile(r"^\s*\[(?:pip3?|conda)\] ([\w.-]+)(?:==|\s+)(\d[\w.+!-]*)")
_GPU = re.compile(r"^\s*(?:GPU models and configuration\s*:\s*)?GPU (\d+): (\S.{1,78}?)\s*$")
# Package -> how gpudoctor calls it; the rest of a Python environment is nobody's business here.
_KEPT = re.compile(r"^(?:torch|pynvml|nvidia-ml-py|nvidia-nccl-cu\d+|nccl|triton|vllm|deepspeed)$")


def parse(section: Section) -> Iterator[Fact | Loss]:
    versions: dict[str, str] = {}
    first: Line | None = None
    gpus: dict[int, Gpu] = {}
    for line in section:
        driver, torch, cuda = _DRIVER.match(line.text), _TORCH.match(line.text), _CUDA.match(line.text)
        package, gpu = _PACKAGE.match(line.text), _GPU.match(line.text)
        if line.cut:  # every value here is open at its end
            continue
        kernel = wsl_of(section, line) if "microsoft" in line.text else None
        if kernel is not None:
            yield kernel
        if driver:
            yield Driver(DriverEntry(version=driver[1], origin={"*": section.at(line)}))
        elif gpu:
            gpus.setdefault(int(gpu[1]), Gpu(index=int(gpu[1]), name=gpu[2], origin={"*": section.at(line)}))
        elif torch or cuda:
            key, value = ("torch", torch[1]) if torch else ("cuda", cuda[1] if cuda else "")
            versions.setdefault(key, value)
            first = first or line
        elif package and _KEPT.match(package[1]):
            name = "nccl" if package[1].startswith("nvidia-nccl") else package[1]
            versions.setdefault(name, package[2])
            first = first or line
    if gpus:
        yield Gpus(tuple(gpus.values()), complete=False)
    if versions and first is not None:
        yield Software(versions, section.at(first))
    if not (gpus or versions or any(_DRIVER.match(line.text) for line in section)):
        raise Unparsable(f"{section.source}: nothing that matters here in PyTorch's environment report")
