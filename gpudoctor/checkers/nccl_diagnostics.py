"""What NCCL's own diagnostics (2.31 and later, NCCL_RUN_DIAGNOSTICS and NCCL_RUN_RAS_DIAGNOSTICS) found not in order.

They mark no line as failed (see gpudoctor.nccl_diagnostics), and NCCL goes on: what a line means is judged here by its words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from gpudoctor import parts, xids
from gpudoctor.checkers.acs import ACS
from gpudoctor.checkers.bandwidth_run import WRONG_RESULTS
from gpudoctor.checkers.ecc_remap import ECC_REMAP
from gpudoctor.checkers.iommu import IOMMU
from gpudoctor.checkers.nccl_causes import NETWORK_ERROR, RANK_MISMATCH
from gpudoctor.checkers.nic import NIC_LINK
from gpudoctor.checkers.nvlink_down import DOWN
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.checkers.xid import XID
from gpudoctor.checkers.xid_remedy import steps
from gpudoctor.facts.nccl import Nccl
from gpudoctor.model import ERROR, LIKELY, NOTE, POSSIBLE, WARNING, CannotTell, Cause, Evidence, Finding, Step
from gpudoctor.nccl_diagnostics import Read, read
from gpudoctor.pattern import lazy

_AGAIN = "NCCL_RUN_DIAGNOSTICS=1 NCCL_RUN_RAS_DIAGNOSTICS=1 COMMAND"
_INVENTORY = lazy(r"GPU inventory: \d+x (.+) per node consistent")
_ONE = lazy(r"\{(\d+)\}$")


class _Said(NamedTuple):
    """What is to be said of one line."""

    cause: Cause
    severity: str
    words: str
    look: str  # a command that shows the same on the host
    confidence: str = LIKELY
    subject: str = "host"
    first: tuple[Step, ...] = ()  # what to do before that


def complained(nccl: Nccl, alike: Collection[str], told: Collection[str], measured: bool) -> Iterator[Finding | CannotTell]:
    """`alike`: settings that every rank must have the same; `told`: of which of them it has been said that they differ;
    `measured`: a program's results are at hand, which another check judges."""
    lines = [(d, read(d.status, d.text)) for d in nccl.diagnostics]
    values: dict[str, list[str]] = {}
    for _, line in lines:
        if line.name == "env-value":
            values.setdefault(line.fields["name"], []).append(f"{line.fields['value']} on {_ranks(line)}")
    models = {found[1] for d in nccl.diagnostics if (found := _INVENTORY.match(d.text)) is not None}
    edges = any(line.name in ("p2p-data", "p2p-edge") for _, line in lines)
    pairs: dict[tuple[str, str], tuple[_Said, list[Evidence]]] = {}
    for diagnostic, line in lines:
        if line.name == "p2p-some" and edges:  # each failed access has its own line
            continue
        if line.name == "env-differs":
            if line.fields["name"] in alike and line.fields["name"] not in told:
                yield _finding(_environment(line, values), (diagnostic.at("text"),))
            continue
        said = _inactive(line, models) if line.name == "nvlink-inactive" else _SAY[line.name](line) if line.name in _SAY else None
        if said is None:
            continue
        if said.subject.startswith("pair:"):  # told once for each direction
            pairs.setdefault((said.cause.slug, said.subject), (said, []))[1].append(diagnostic.at("text"))
        else:
            yield _finding(said, (diagnostic.at("text"),))
    for said, spots in pairs.values():
        yield _finding(said, tuple(spots))
    if not any(d.text.startswith("p2p: ") for d in nccl.diagnostics) and not measured:
        yield CannotTell(WRONG_RESULTS.slug, "nothing in the input compares what arrives with what must (all_reduce_perf -c 1, NCCL_RUN_DIAGNOSTICS=1)")


def _finding(said: _Said, evidence: tuple[Evidence, ...]) -> Finding:
    verify = Step("Let NCCL look again once it is mended", _AGAIN, "none")
    look = (Step("See the same on the host", said.look),) if said.look else ()
    return Finding(
        said.cause.slug, said.severity, said.subject, f"NCCL's own diagnostics: {said.words}", evidence[:6], said.confidence,
        remediation=(*look, *said.first, verify),
    )  # fmt: skip


def _ranks(line: Read) -> str:
    return f"rank{'' if _ONE.match(line.fields['ranks']) else 's'} {line.fields['ranks'].replace('{', '').replace('}', '')}"


def _of(line: Read) -> str:
    one = _ONE.match(line.fields["ranks"])
    return f"rank:{one[1]}" if one is not None else "host"


def _path(line: Read) -> tuple[str, str]:
    """What the way between two GPUs is, and what shows it."""
    path = line.fields["path"]
    if line.fields["handle"] == "CUMEM_FABRIC" or path == "NET":
        return "over NVLink between hosts", "nvidia-imex-ctl -H -N   # every node READY, every connection C"
    if path in ("NVL", "NVB"):
        return "over NVLink", "nvidia-smi nvlink -s; nvidia-smi nvlink -e; nvidia-smi topo -p2p n"
    return f"over PCIe ({path})", "nvidia-smi topo -p2p p; cat /proc/cmdline; sudo lspci -vvv | grep -i ACSCtl"


def _pair(line: Read) -> str:
    a, b = sorted((int(line.fields["a"]), int(line.fields["b"])))
    inside = line.fields["handle"] != "CUMEM_FABRIC" and line.fields["path"] != "NET"
    return f"pair:{a}-{b}" if inside and 0 <= a < b else "host"


def _who(line: Read) -> str:
    return f"rank {line.fields['src']} (GPU{line.fields['a']}) to rank {line.fields['dst']} (GPU{line.fields['b']})"


def _wrong_data(line: Read) -> _Said:
    way, look = _path(line)
    verb = "wrote into" if line.fields["way"] == "write" else "read from"
    return _Said(
        WRONG_RESULTS, ERROR, f"a GPU {verb} another's memory {way} and other data arrived, from {_who(line)}. Collectives over it are wrong.", look,
        subject=_pair(line),
        first=(Step("Until then keep that traffic off peer to peer", "export NCCL_P2P_DISABLE=1", "reversible", "all_reduce_perf -c 1"),),
    )  # fmt: skip


def _edge(line: Read) -> _Said:
    way, look = _path(line)
    first: tuple[Step, ...] = ()
    if line.fields["what"] == "peer-memory import failed" and line.fields["handle"] == "LEGACY_CUDA_IPC":
        first = (Step("Give the containers of one host one IPC and PID namespace", "docker run --ipc=host --pid=host IMAGE", "reversible"),)
    elif line.fields["what"] == "peer-memory import failed" and line.fields["handle"] == "CUMEM_POSIX_FD":
        first = (Step("See whether CUDA IPC works where memory by file descriptor does not", "export NCCL_CUMEM_ENABLE=0", "reversible"),)
    return _Said(
        UNSUPPORTED, ERROR, f"peer access {way} could not be used from {_who(line)}: {line.fields['what']}. NCCL goes on and will fail or hang there.",
        look, subject=_pair(line), first=first,
    )  # fmt: skip


def _some_pairs(line: Read) -> _Said:
    return _Said(
        UNSUPPORTED, ERROR, f"only {line.fields['good']} of {line.fields['all']} accesses from one GPU to another passed; the log at hand does not say which failed.",
        "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w",
    )  # fmt: skip


def _net_off(line: Read) -> _Said | None:
    rate, median = float(line.fields["rate"]), float(line.fields["median"])
    if rate >= median:  # an adapter that is faster than most is no fault
        return None
    return _Said(
        NIC_LINK, WARNING, f"the adapter of rank {line.fields['rank']} on {line.fields['host']} carries {rate:g} Gbit/s, the median is {median:g} ({line.fields['mode']}).",
        "ibstat; ib_write_bw -d DEVICE   # on one host; on the other: ib_write_bw -d DEVICE HOST", subject=f"rank:{line.fields['rank']}",
    )  # fmt: skip


def _net_failed(line: Read) -> _Said:
    server, client, nic = (line.fields[k] for k in ("server", "client", "nic"))
    slow = " A link that is nearly down takes longer than it waits." if "timed out" in line.fields["what"] else ""
    return _Said(
        NETWORK_ERROR, WARNING, f"ib_write_bw from {client} to {server} over {nic} gave no result: {line.fields['what']}.{slow}",
        f"ib_write_bw -d {nic}   # on {server}; on {client}: ib_write_bw -d {nic} {server}", POSSIBLE,
    )  # fmt: skip


def _differing_gpus(line: Read) -> _Said:
    what = "another number of GPUs" if line.name == "gpu-count" else "another model of GPU"
    more = "A node with one less than the others may have lost it." if line.name == "gpu-count" else "The slowest sets the pace of all."
    return _Said(
        RANK_MISMATCH, WARNING, f"{_ranks(line)} see{'s' if _of(line) != 'host' else ''} {what} than rank {line.fields['of']} ({line.fields['there']}). {more} Where nodes are meant to differ this is in order.",
        "nvidia-smi -L   # on every host", subject=_of(line),
    )  # fmt: skip


def _version(line: Read) -> _Said:
    return _Said(
        VERSION_MISMATCH, WARNING, f"{_ranks(line)} run{'s' if _of(line) != 'host' else ''} with another {line.fields['what']} version than rank {line.fields['of']} ({line.fields['there']}). Ranks of one job should run on one.",
        "nvidia-smi --query-gpu=driver_version --format=csv   # on every host", subject=_of(line),
    )  # fmt: skip


def _environment(line: Read, values: dict[str, list[str]]) -> _Said:
    name = line.fields["name"]
    is_ = f" is {', '.join(values[name][:6])}" if name in values else " differs"
    return _Said(
        RANK_MISMATCH, ERROR, f"{name}{is_}. NCCL chooses algorithms and transports by it, so a collective hangs or breaks.", "env | grep NCCL_ | sort   # on every host",
        first=(Step("Start every rank with the same environment (mpirun -x, srun --export=ALL, one image)"),),
    )  # fmt: skip


def _ecc(line: Read) -> _Said:
    if line.name == "ecc-corrected":
        return _Said(ECC_REMAP, NOTE, f"the GPUs of {_ranks(line)} corrected memory errors, up to {line.fields['worst']}: over the limit that was set.", "nvidia-smi -q -d ECC,ROW_REMAPPER", subject=_of(line))
    return _Said(
        ECC_REMAP, ERROR, f"uncorrected memory errors since the last reset on the GPUs of {_ranks(line)}, up to {line.fields['worst']} on one.",
        "nvidia-smi -q -d ECC,ROW_REMAPPER", subject=_of(line),
    )  # fmt: skip


def _inactive(line: Read, models: set[str]) -> _Said:
    """A card may have no bridge; whether the board must have all links up, the model tells where a line names it."""
    found = [parts.find(None, m) for m in models]
    board = any(parts.needs_all_links(p, m) for p, m in zip(found, models, strict=True))
    cards = bool(found) and all(p is not None and not p.required for p in found)
    severity, why = (ERROR, "On this board every link must be up.") if board else (NOTE, "On a card without a bridge that is in order.") if cards else (
        WARNING, "On a board that is a fault, on a card without a bridge it is in order."
    )  # fmt: skip
    return _Said(DOWN, severity, f"inactive NVLinks on the GPUs of {_ranks(line)}. {why}", "nvidia-smi nvlink -s; nvidia-smi topo -m", subject=_of(line))


def _links(line: Read) -> _Said:
    if line.name == "nvlink-count":
        words = f"the GPUs of {_ranks(line)} have another number of NVLinks than that of rank {line.fields['of']} ({line.fields['there']})."
    else:
        words = f"the NVLinks on the GPUs of {_ranks(line)} run at speeds unlike each other or unlike the other ranks'."
    return _Said(DOWN, WARNING, f"{words} Where all GPUs are of one model that is a fault.", "nvidia-smi nvlink -s; nvidia-smi nvlink -e", subject=_of(line))


def _rdma_topo(line: Read) -> _Said:
    return _Said(
        ACS, WARNING, f"rdma_topo, which looks at the PCIe switches between GPU and adapter, reports on {_ranks(line)}: {line.fields['said'][:160]}",
        "sudo rdma_topo check; sudo lspci -vvv | grep -i ACSCtl", subject=_of(line),
    )  # fmt: skip


def _iommu(line: Read) -> _Said:
    return _Said(
        IOMMU, WARNING, f"the IOMMU translates for {line.fields['devices']} of the GPUs and adapters that this job pairs, which stands in the way of GPUDirect RDMA.",
        "cat /proc/cmdline; cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",
    )  # fmt: skip


_XID_ERRORS = frozenset(("memory", "link", "gpu-hardware", "fallen-off", "switch-fatal", "always-fatal"))


def _xid(line: Read) -> _Said:
    kind, code = line.fields["kind"].lower(), int(line.fields["code"])
    known = xids.lookup(kind, code)
    if kind == "sxid":
        severity = ERROR if line.fields.get("fatal") == "Fatal" else WARNING
    else:
        severity = NOTE if known.family == "application" else ERROR if known.family in _XID_ERRORS else WARNING
    return _Said(
        XID, severity, f"{line.fields['kind']} {code} on {line.fields['host']} during the job, {line.fields['times']} times: {known.meaning}.".replace(", 1 times", ""),
        "sudo dmesg -T | grep -i xid", first=steps(known.remedy, None, ()),
    )  # fmt: skip


def _nic(line: Read) -> _Said:
    nic = line.fields["nic"]
    if line.name == "nic-down":
        return _Said(NIC_LINK, WARNING, f"the port of {nic}, which NCCL uses, is not active.", "ibstat", subject=f"nic:{nic}")
    return _Said(
        NIC_LINK, WARNING, f"{nic} of {_ranks(line)} differs from that of rank {line.fields['of']} ({line.fields['there']}).", "ibstat   # on every host",
        subject=f"nic:{nic}",
    )  # fmt: skip


_SAY: dict[str, Callable[[Read], _Said | None]] = {
    "p2p-data": _wrong_data, "p2p-edge": _edge, "p2p-some": _some_pairs, "net-off": _net_off, "net-failed": _net_failed,
    "gpu-count": _differing_gpus, "gpu-model": _differing_gpus, "version": _version, "ecc-uncorrected": _ecc, "ecc-corrected": _ecc,
    "nvlink-count": _links, "nvlink-speed": _links, "rdma-topo": _rdma_topo, "iommu": _iommu, "xid": _xid, "nic-down": _nic, "nic-differs": _nic,
}  # fmt: skip
