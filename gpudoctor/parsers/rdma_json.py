"""The RDMA devices in the JSON of the `pci` child probe (/sys/class/infiniband) to Nics."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor import bdf as address
from gpudoctor.facts.topology import Nic, Nics
from gpudoctor.parsers.probe_json import rows, table, text, whole
from gpudoctor.read.section import Section

_RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec")  # "400 Gb/sec (4X NDR)"


def rdma(section: Section, said: dict[str, Any]) -> Nics:
    """RDMA devices. A device with several ports is one adapter, judged by its best port: unused ports are no fault."""
    found = said.get("infiniband")
    nics = []
    for name, about in table(found).items():
        if not isinstance(about, dict) or not text(name):
            continue
        ports = [(p, v) for p, v in table(about.get("ports")).items() if whole(p) is not None and isinstance(v, dict)]
        place = f"/sys/class/infiniband/{text(name)}"
        common: dict[str, Any] = {
            "name": text(name),
            "device": text(name),
            "bdf": _function(about.get("path")),
            "numa_node": whole(about.get("numa_node"), 1 << 16),
        }
        if not ports:
            nics.append(Nic(**common, origin={"*": section.spot(place, text(name))}))
            continue
        port, values = max(ports, key=lambda p: (_state(p[1]) == "active", _rate(p[1]) or 0.0, -int(p[0])))
        netdevs = [n for n in map(text, rows(about.get("netdevs"))) if n]
        below = f"{place}/ports/{port}"
        nics.append(
            Nic(
                **common,
                port=whole(port),
                state=_state(values),
                rate_gbps=_rate(values),
                link_layer=text(values.get("link_layer")),
                netdev=text(values.get("netdev")) or (netdevs[0] if len(netdevs) == 1 else None),
                origin={
                    "*": section.spot(f"{below}/state", text(values.get("state"))),
                    "rate_gbps": section.spot(f"{below}/rate", text(values.get("rate"))),
                    "bdf": section.spot(f"{place}/device", text(about.get("path"))),
                    "numa_node": section.spot(f"{place}/device/numa_node", text(about.get("numa_node"))),
                },
            )
        )
    return Nics(tuple(nics), states_read=isinstance(found, dict))


def _state(port: dict[str, Any]) -> str | None:
    """`4: ACTIVE` -> active. The kernel's words: NOP, DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER."""
    word = (text(port.get("state")) or "").partition(":")[2].strip().lower()
    return {"active_defer": "active"}.get(word, word) or None


def _rate(port: dict[str, Any]) -> float | None:
    found = _RATE.match(text(port.get("rate")) or "")
    return float(found[1]) if found and 0 < float(found[1]) < 1e5 else None


def _function(path: Any) -> str | None:
    """The PCI function a device hangs off: the last address in its path (virtual functions of auxiliary devices too)."""
    found = [address.normalise(p) for p in (text(path) or "").split("/") if p.count(":") == 2]
    return next((f for f in reversed(found) if f), None)
