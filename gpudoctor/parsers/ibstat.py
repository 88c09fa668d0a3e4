"""`ibstat`, `ibv_devinfo` and `ibstatus` to Nics: the state, rate and link layer of each RDMA port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.topology import Nic, Nics
from gpudoctor.model import Evidence
from gpudoctor.read.section import Line, Section, Unparsable

_DEVICE = re.compile(r"^\s*(?:CA '([^']+)'|hca_id:\s*(\S+)|Infiniband device '([^']+)' port (\d+) status)")
_PORT = re.compile(r"^\s*[Pp]ort(?:\s+(\d+):|:\s*(\d+)\s*$)")
_COUNT = re.compile(r"^\s*(?:Number of ports|phys_port_cnt):\s*(\d+)\s*$")
_STATE = re.compile(r"^\s*[Ss]tate:\s*(?:\d+:\s*|PORT_)?([A-Za-z]+)\b(.*)$")
_RATE = re.compile(r"^\s*[Rr]ate:\s*(\d+(?:\.\d+)?)\b(.*)$")
# ibstat names the part, ibv_devinfo numbers it: MT4129 and 4129 are one.
_MODEL = re.compile(r"^\s*(?:CA type:\s*MT|vendor_part_id:\s*)(\d{3,6})\s*$")
_LAYER = re.compile(r"^\s*[Ll]ink[ _]layer:\s*(InfiniBand|Ethernet)\b")
# ibv_devinfo -v gives lanes and the rate of one lane.
_LANES = re.compile(r"^\s*active_width:\s*(\d+)X")
_LANE_RATE = re.compile(r"^\s*active_speed:\s*(\d+(?:\.\d+)?) Gbps")
_STATES = {
    "active": "active",
    "down": "down",
    "init": "init",
    "initializing": "init",
    "initialize": "init",
    "armed": "armed",
}


class _Port:
    def __init__(self, device: str, evidence: Evidence) -> None:
        self.device = device
        self.values: dict[str, Any] = {}
        self.origin = {"*": evidence}
        self.lanes: int | None = None
        self.declared = 1  # ports that the device says it has

    def set(self, field: str, value: Any, evidence: Evidence) -> None:
        if field not in self.values:
            self.values[field] = value
            self.origin[field] = evidence


def parse(section: Section) -> Iterator[Fact | Loss]:
    ports: list[_Port] = []
    for line in section:
        device = _DEVICE.match(line.text)
        if device:
            name = device[1] or device[2] or device[3]
            if device[2] and line.cut and not line.text[-1:].isspace():
                continue  # mlx5_1 may be the beginning of mlx5_10
            ports.append(_Port(name, section.at(line)))
            if device[4]:
                ports[-1].set("port", int(device[4]), section.at(line))
        elif ports:
            _take(section, line, ports)
    if not ports:
        raise Unparsable(f"{section.source}: no RDMA device in it")
    yield Nics(
        tuple(
            _nic(device, [p for p in ports if p.device == device]) for device in dict.fromkeys(p.device for p in ports)
        ),
        states_read=any("state" in p.values for p in ports),
    )


def _take(section: Section, line: Line, ports: list[_Port]) -> None:
    port, count = _PORT.match(line.text), _COUNT.match(line.text)
    last = ports[-1]
    # A number at the very end of the input may go on, a word may not be whole.
    loose = line.cut and not line.text[-1:].isspace()
    if port and not (loose and port[2]):
        if "port" in last.values:
            ports.append(_Port(last.device, last.origin["*"]))
            ports[-1].declared = last.declared
        ports[-1].set("port", int(port[1] or port[2]), section.at(line))
        return
    model = _MODEL.match(line.text)
    if count:
        last.declared = int(count[1])
        return
    state, rate, layer = _STATE.match(line.text), _RATE.match(line.text), _LAYER.match(line.text)
    lanes, lane_rate = _LANES.match(line.text), _LANE_RATE.match(line.text)
    if state and not (loose and not state[2]):
        word = _STATES.get(state[1].lower())
        if word:
            last.set("state", word, section.at(line))
    elif rate and not (loose and not rate[2].strip()):
        last.set("rate_gbps", float(rate[1]), section.at(line))
    elif model and not loose:
        last.set("model", f"MT{model[1]}", section.at(line))
    elif layer:
        last.set("link_layer", layer[1], section.at(line))
    elif lanes:
        last.lanes = int(lanes[1])
    elif lane_rate and last.lanes:
        last.set("rate_gbps", last.lanes * float(lane_rate[1]), section.at(line))


def _nic(device: str, ports: list[_Port]) -> Nic:
    """A device with several ports is judged by its best one: an unused second port is no fault."""
    best = min(ports, key=lambda p: {"active": 0, "armed": 1, "init": 2}.get(p.values.get("state", ""), 3))
    first = ports[0]  # the part stands above the first port
    if "model" in first.values:
        best.set("model", first.values["model"], first.origin["model"])
    if sum("state" in p.values for p in ports) < first.declared and best.values.get("state") != "active":
        # The better port may be among those that a cut took.
        return Nic(name=device, device=device, model=best.values.get("model"), origin=best.origin)
    return Nic(name=device, device=device, **best.values, origin=best.origin)
