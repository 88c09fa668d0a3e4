"""`rdma link` to Nics: the state of each RDMA port, and the network interface of those that have one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.topology import Nic, Nics
from gpudoctor.read.section import Section

_PORT = re.compile(
    r"^\s*(?:link |\d{1,4}/\d{1,3}: )(?P<device>[\w.-]{1,64})/(?P<port>\d{1,3}):? (?P<before>.{0,200}?)\bstate (?P<state>[A-Z]+)"
    r" physical_state [A-Z_]+(?: netdev (?P<netdev>[\w.@-]{1,64})(?=(?P<whole>\s?)))?"
)
_STATES = {"ACTIVE": "active", "ACTIVE_DEFER": "active", "DOWN": "down", "INIT": "init", "ARMED": "armed", "NOP": "down"}


def parse(section: Section) -> Iterator[Fact | Loss]:
    """A port with a LID is InfiniBand's; one with an interface and none is Ethernet's (RoCE)."""
    nics: dict[str, Nic] = {}
    for line in section:
        found = _PORT.match(line.text)
        state = _STATES.get(found["state"]) if found is not None else None
        if found is None or state is None:
            continue
        netdev = found["netdev"] if found["whole"] or not line.cut else None
        layer = "InfiniBand" if " lid " in f" {found['before']}" else "Ethernet" if found["netdev"] else None
        name, known = found["device"], nics.get(found["device"])
        if known is None or known.state != "active":  # the better of two ports counts: an unused one is no fault
            nics[name] = Nic(
                name=name, device=name, port=int(found["port"]), state=state, netdev=netdev, link_layer=layer, origin={"*": section.at(line)}
            )
    if nics:
        yield Nics(tuple(nics.values()), states_read=True)
