"""The NVLinks and GPU pairs in the JSON of the `nvml` child probe."""

from __future__ import annotations

from typing import Any

from gpudoctor import bdf as address
from gpudoctor.facts.topology import NvLink, NvLinkGpu, NvLinks, Pair, Pairs
from gpudoctor.model import Evidence
from gpudoctor.parsers.probe_json import rows, table, tables, text, whole
from gpudoctor.read.section import Section

MAX_GPUS = 512  # more than any host has; keeps a hostile answer from growing quadratically
MAX_LINKS = 64
_SLEEPING = 2  # NVML_FI_DEV_NVLINK_GET_STATE: 0 inactive, 1 active, 2 sleep
_REMOTE = {0: "gpu", 1: "cpu", 2: "switch"}  # 1 is the IBM POWER NPU; 255 is unknown
# NVML's answers of nvmlDeviceGetP2PStatus in nvidia-smi's words.
_P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
# nvmlGpuTopologyLevel_t. It knows no NVLink, so this is the way over PCIe. INTERNAL is two GPUs of one board.
_ANCESTOR = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# The driver gives speeds of active links only; what passes this is no link's (NVLink 5 has 50,000 MB/s).
_MOST_MBS = 1_000_000


def links(section: Section, gpus: dict[int, dict[str, Any]]) -> NvLinks:
    """Every link NVML listed, and which GPUs have none."""
    out: dict[tuple[int, int], NvLink] = {}
    about: list[NvLinkGpu] = []
    for index, said in gpus.items():
        place = f"gpus[{index}].nvlinks"
        for _, row in tables(said.get("nvlinks")):
            number = whole(row.get("link"), MAX_LINKS - 1)
            if number is not None:
                out.setdefault((index, number), _link(section, index, number, row, f"{place}[{number}]"))
        note = text(table(said.get("errors")).get("GetNvLinkState"))
        none = _has_none(said, note)
        if any(gpu == index for gpu, _ in out) or none:
            about.append(
                NvLinkGpu(
                    gpu=index,
                    name=text(said.get("name")),
                    uuid=text(said.get("uuid")),
                    no_nvlink=True if none else None,
                    origin={"*": section.spot(place, note or "listed")},
                )
            )
    return NvLinks(tuple(out.values()), tuple(about))


def _has_none(said: dict[str, Any], note: str | None) -> bool:
    """Not supported, or a count of none. Inside a vGPU, under MIG or on a lost GPU the answer says nothing of the part."""
    if (
        rows(said.get("nvlinks"))
        or text(said.get("error"))
        or said.get("virtualization_mode") == 2
        or said.get("mig_mode") == 1
    ):
        return False
    return note == "Not Supported" or note is None and whole(said.get("nvlink_count")) == 0


def _link(section: Section, gpu: int, number: int, said: dict[str, Any], place: str) -> NvLink:
    state = whole(said.get("active"), 1)
    sleeping = whole(said.get("state"), 8) == _SLEEPING
    now, before = table(said.get("errors")), table(said.get("errors_before"))
    speed = whole(said.get("speed_mbs"), _MOST_MBS)
    remote = text(said.get("remote_bus_id"))
    kind = whole(said.get("remote_type"), 255)
    origin: dict[str, Evidence] = {
        "*": section.spot(f"{place}.active", state if state is not None else text(said.get("error")))
    }
    for field in ("replay", "recovery", "crc", "recovery_failed"):
        if whole(now.get(field)) is not None:
            origin[field] = section.spot(f"{place}.errors.{field}", now[field])
    origin["errors_before"] = section.spot(f"{place}.errors_before", _counts(before))
    return NvLink(
        gpu=gpu,
        link=number,
        # A sleeping link is trained and wakes by itself: NVML's older call says inactive of it, or active.
        active=True if sleeping else None if state is None else state == 1,
        sleeping=sleeping or None,
        speed_gbs=speed / 1000 if speed else None,
        replay=whole(now.get("replay")),
        recovery=whole(now.get("recovery")),
        crc=whole(now.get("crc")),
        recovery_failed=whole(now.get("recovery_failed")),
        errors_before=_counts(before) if before else None,
        # The all-ones address is how a hypervisor hides the switch.
        remote_bdf=address.normalise(remote) if remote and len(remote) < 32 else None,
        remote_kind=None if kind is None else _REMOTE.get(kind),
        version=whole(said.get("version"), 64),
        origin=origin,
    )


def _counts(said: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    return whole(said.get("replay")), whole(said.get("recovery")), whole(said.get("crc"))


def pairs(section: Section, said: dict[str, Any], gpus: dict[int, dict[str, Any]], found: NvLinks) -> Pairs:
    """The driver's peer-to-peer answers and the path of each pair."""
    known = {index: text(about.get("bus_id")) for index, about in gpus.items()}
    active: dict[int, list[NvLink]] = {}
    for link in found:
        if link.active:
            active.setdefault(link.gpu, []).append(link)
    # A GPU whose links NVML listed without one active, or that has none: its path can only be PCIe.
    without = {g.gpu for g in found.gpus if g.gpu not in active and all(k.active is not None for k in found.of(g.gpu))}
    out: dict[tuple[int, int], Pair] = {}
    for place, row in tables(said.get("pairs")):
        if place >= MAX_GPUS * MAX_GPUS // 2:
            break
        a, b = whole(row.get("a"), MAX_GPUS), whole(row.get("b"), MAX_GPUS)
        if a is None or b is None or a >= b or a not in gpus or b not in gpus or (a, b) in out:
            continue
        out[a, b] = _pair(section, f"pairs[{place}]", a, b, row, active, without, known)
    return Pairs(tuple(out.values()))


def _pair(
    section: Section,
    place: str,
    a: int,
    b: int,
    said: dict[str, Any],
    active: dict[int, list[NvLink]],
    without: set[int],
    known: dict[int, str | None],
) -> Pair:
    origin: dict[str, Evidence] = {"*": section.spot(place, f"GPU{a} and GPU{b}")}
    words: dict[str, str | None] = {}
    for field, key in (
        ("p2p_read", "read"),
        ("p2p_write", "write"),
        ("p2p_nvlink", "nvlink"),
        ("p2p_atomics", "atomics"),
    ):
        words[field] = _status(said.get(key))
        origin[field] = section.spot(f"{place}.{key}", words[field])
    level = whole(said.get("ancestor"), 100)
    pcie = _ANCESTOR.get(level) if level is not None else None
    origin["pcie_path"] = origin["path"] = section.spot(f"{place}.ancestor", level)
    joined, count = _by_nvlink(active.get(a, []), active.get(b, []), known[a], known[b])
    if words["p2p_nvlink"] == "OK" and joined:
        origin["path"] = origin["nvlinks"] = section.spot(
            f"{place}.nvlink", f"P2P over NVLink OK, {count or 'some'} links"
        )
        return Pair(a=a, b=b, path="NVL", nvlinks=count, pcie_path=pcie, origin=origin, **words)  # type: ignore[arg-type]
    exact = a in without or b in without
    return Pair(a=a, b=b, path=pcie, pcie_only=None if exact or pcie is None else True, origin=origin, **words)  # type: ignore[arg-type]


def _status(value: Any) -> str | None:
    """The answers of both directions: the one that refuses decides."""
    answers = [_P2P.get(code) for code in (whole(v, 16) for v in rows(value)[:2]) if code is not None]
    found = [answer for answer in answers if answer is not None]
    return next((answer for answer in found if answer != "OK"), found[0] if found else None)


def _by_nvlink(
    first: list[NvLink], second: list[NvLink], bus_a: str | None, bus_b: str | None
) -> tuple[bool, int | None]:
    """Are the two joined by NVLink, and by how many links: directly, or through switches that all their links enter."""
    a, b = (address.normalise(bus) if bus and len(bus) < 32 else None for bus in (bus_a, bus_b))
    direct = [sum(1 for k in first if b and k.remote_bdf == b), sum(1 for k in second if a and k.remote_bdf == a)]
    if max(direct):
        return True, direct[0] if direct[0] == direct[1] else None
    switched = [sum(1 for k in links if k.remote_kind == "switch") for links in (first, second)]
    if min(switched):
        return True, switched[0] if switched[0] == switched[1] else None
    return False, None
