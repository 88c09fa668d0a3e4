"""`ibdev2netdev` to Nics: which network interface is whose, and with -v the state of each port.

`Up` and `Down` are those of the interface. An interface that is up has an active port below it; one that is down may only lack
an address: an InfiniBand port carries RDMA without any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.topology import Nic, Nics
from gpudoctor.read.section import Section, Unparsable

_PORT = re.compile(
    r"^\s*(?:(?P<bdf>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) )?(?P<device>[\w.-]{1,64})(?: \(MT(?P<model>\d{3,6}) - [^()]{1,40}\).{0,200}?)?"
    r"\s+port\s+(?P<port>\d{1,3})(?: \((?P<state>[A-Z]+)\s*\))?\s+==>\s+(?P<netdev>[\w.@-]{1,64})\s+\((?P<up>Up|Down)\)"
)
_STATES = {"ACTIVE": "active", "DOWN": "down", "INIT": "init", "ARMED": "armed"}


def parse(section: Section) -> Iterator[Fact | Loss]:
    nics: dict[str, Nic] = {}
    for line in section:
        found = _PORT.match(line.text)
        if found is None:
            continue
        state = _STATES.get(found["state"] or "") or ("active" if found["up"] == "Up" else None)
        values: dict[str, Any] = {"port": int(found["port"]), "netdev": found["netdev"], "state": state}
        if found["bdf"]:
            values["bdf"] = normalise(found["bdf"])
        if found["model"]:
            values["model"] = f"MT{found['model']}"
        if found["state"]:
            values["link_layer"] = "InfiniBand" if found["netdev"].startswith("ib") else "Ethernet"
        name = found["device"]
        known = nics.get(name)
        if known is None or known.state != "active":  # the better of two ports counts: an unused one is no fault
            nics[name] = Nic(name=name, device=name, origin={"*": section.at(line)}, **values)
    if not nics:
        raise Unparsable(f"{section.source}: no line of a port in what looks like ibdev2netdev")
    yield Nics(tuple(nics.values()), states_read=any(n.state for n in nics.values()))
