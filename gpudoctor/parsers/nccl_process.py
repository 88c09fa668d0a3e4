"""NCCL lines that speak of a process and not of a communicator: said once, or again with the same words.

Each function reads one message (without `NCCL INFO `). Reading it twice must change nothing, and where it takes the place
of an earlier, different word the process forgets which lines it has read (Proc.learn): equal lines are then read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.parsers.nccl_complaints import Where
from gpudoctor.parsers.nccl_place import Place
from gpudoctor.parsers.nccl_state import Proc

_ENV = re.compile(rb"([A-Z][A-Z0-9_]+) set (?:by (?:environment|config)(?: file)? )?to (.*)\n")
_VERSION = re.compile(rb"version (\d+\.\d+\.\d+)(?:[^\d\s+.][^\s+]*)?(?:\+cuda[\w.]*[\s*]|\s)")
_CUDA = re.compile(rb"cudaDriverVersion (\d+)\s")
# `[0]mlx5_0:1/IB`; since 2.30.7 with rail and plane where they are known (`mlx5_0:1:0:1/IB`); 2.20 to 2.23 show ports taken together
# as `[0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}`, later releases as `mlx5_0+mlx5_1:1/IB`.
_NICS = re.compile(rb"\[\d+\](?:([\w.+-]+:\d+)(?::\d*(?::\d+)?)?(/\w+)(?=[ ;])|=\{(\[\d+\] [^{}\n]{1,400})\})")
_TOGETHER = re.compile(rb"\[\d+\] ([\w.+-]+)(:\d+/\w+)")
_INTERFACES = re.compile(rb"\[\d+\]([\w.:@-]+:\[?[0-9a-fA-F.:]+(?:%[\w.@-]{0,40})?\]?<\d+>)")  # `eth0:fe80::1%eth0<0>`
_ADDRESS = re.compile(rb"Using (?:interface )?(?:\[\d+\])?([\w.@-]+:[0-9a-fA-F.:]+(?:%[\w.@-]{0,40})?)(?:<\d+>)?\s")
_GDR = re.compile(rb"GPU Direct RDMA (?:\([A-Za-z-]{1,20}\) )?([Ee]nabled|[Dd]isabled) for HCA (\d+) '([^'\s]+)['\s]")
_GDR_OLD = re.compile(rb"GPU Direct RDMA (Enabled|Disabled) for GPU \S+ / HCA ([0-9a-fA-F]+) \(distance")
_AFFINITY = re.compile(rb"(?:Setting affinity for GPU (\d+) to|Affinity for GPU (\d+) is) ([^\n(]*)")
_FORCED = re.compile(rb"\(GPU affinity = ([\d,-]+) ; CPU affinity = ([\d,-]+)\)")
_FABRIC = re.compile(rb"MNNVL busId \S+ fabric UUID \S+ cliqueId \S+ state (\d+) ")


class Seen:
    """Where something was first said."""

    def __init__(self) -> None:
        self.spots: dict[str, Place] = {}
        self.settings: dict[tuple[str, str], Place] = {}

    def note(self, kind: str, where: Where) -> None:
        if kind not in self.spots:
            self.spots[kind] = where()


def version_in(message: bytes, at: int = 0) -> str | None:
    """`version 2.28.9+cuda13.0`"""
    found = _VERSION.match(message, at)
    return found[1].decode() if found is not None else None


def of_torch(version: str | None) -> str | None:
    """PyTorch up to 1.11 took NCCL's number (21003 is 2.10.3 since 2.9) apart as that of older releases: `21.0.3`."""
    if version is None or version[:1] != "2" or version[2:3] != ".":
        return version
    major, minor, patch = (*map(int, version.split(".")), 0)[:3]
    code = major * 1000 + minor * 100 + patch
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


def _env(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _ENV.match(message)
    if found is None:
        return
    name, value = found[1].decode(), found[2].rstrip(b" \r").decode("utf-8", "replace")
    if value[-1:] in ('"', "'", "`") and value.count(value[-1]) == 1:  # of the sentence that quotes the line
        value = value[:-1]
    if not value:  # cut off in front of it
        return
    if value[-1:] == "." and value[:-1].lstrip("-").isdigit():
        value = value[:-1]
    if proc.env.get(name, value) != value:
        proc.heard.clear()
    proc.env[name] = value
    if (name, value) not in seen.settings:
        seen.settings[name, value] = where()


def _version(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    version = version_in(message, 5)
    if version is not None:
        proc.learn("version", version)


def _using(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    for words in (b"Using network ", b"Using internal Network ", b"Using internal network "):
        if message.startswith(words) and message.endswith(b"\n"):
            name = message[len(words) :].strip().decode("utf-8", "replace")
            proc.learn("network", name)
            seen.note("network " + name, where)


def _ib(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    if message.startswith(b"NET/IB : Using ["):
        found = _NICS.findall(message.partition(b"; OOB")[0])
        if found:
            proc.learn("nics", tuple(_nic(*words) for words in found))
            seen.note("nics", where)
    elif b"GPU Direct" in message:
        gdr(proc, message, seen, where)
    elif b"using interface" in message.lower():
        _bootstrap(proc, message, seen, where)


def _nic(port: bytes, link: bytes, several: bytes) -> str:
    """An adapter of the list, or several ports that NCCL takes for one."""
    parts = _TOGETHER.findall(several)
    if parts:
        port, link = b"+".join(name for name, _ in parts), parts[0][1]
    return (port + link).decode()


def gdr(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    """GPUDirect RDMA of one NIC; one GPU that can do it is enough."""
    if b"Direct RDMA Disabled" in message or b") disabled for HCA" in message:
        seen.note("gdr off", where)
    found = _GDR.search(message)
    if found is not None:
        name = found[3].decode("utf-8", "replace")
        proc.gdr[name] = proc.gdr.get(name, False) or found[1].lower() == b"enabled"
    else:
        old = _GDR_OLD.search(message)
        if old is not None:
            name = f"HCA {old[2].decode()}"
            proc.gdr[name] = proc.gdr.get(name, False) or old[1] == b"Enabled"


def _socket(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _INTERFACES.findall(message)
    if found:
        proc.learn("interfaces", tuple(n.rsplit(b"<", 1)[0].decode("utf-8", "replace") for n in found))


def _bootstrap(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _ADDRESS.search(message)
    if found is not None:
        proc.learn("address", found[1].decode("utf-8", "replace"))


def _driver(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _CUDA.match(message)
    if found is not None:
        proc.learn("cuda_driver", int(found[1]))


def _affinity(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _AFFINITY.search(message)
    if found is None:
        return
    index = int(found[1] or found[2])
    text = found[3].strip().decode("utf-8", "replace").rstrip(".")
    if text.startswith("empty"):
        both = _FORCED.search(message)
        text = f"forced {both[1].decode()} {both[2].decode()}" if both is not None else "empty"
        seen.note(f"affinity {index}", where)
    if proc.affinity.get(index, text) != text:
        proc.heard.clear()
    proc.affinity[index] = text


def _mnnvl(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    found = _FABRIC.match(message)
    if found is not None:
        proc.learn("fabric_state", int(found[1]))


def _dma_buf(proc: Proc, message: bytes, seen: Seen, where: Where) -> None:
    if message.startswith(b"DMA-BUF is available"):
        proc.dma_buf = True


# By the first characters of the message.
READERS: dict[bytes, Callable[[Proc, bytes, Seen, Where], None]] = {
    b"NCCL_": _env, b"CUDA_": _env, b"NCCL ": _version, b"Using": _using, b"NET/I": _ib, b"NET/S": _socket, b"NET :": _bootstrap,
    b"Boots": _bootstrap, b"cudaD": _driver, b"Setti": _affinity, b"ncclT": _affinity, b"MNNVL": _mnnvl, b"DMA-B": _dma_buf,
}  # fmt: skip
