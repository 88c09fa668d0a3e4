"""Lines of PyTorch's process group that tell no cause: a complaint that is not known here, or the store that went away."""

from __future__ import annotations

from gpudoctor.facts.hang import Watchdog
from gpudoctor.model import Missing

_KINDS = ("store", "unread")


def complaint(watchdog: Watchdog) -> Missing | None:
    """Where nothing else is told."""
    told = next((a for a in watchdog.accused if a.kind in _KINDS), None)
    if told is None or watchdog.works or watchdog.deaths or any(a.kind not in _KINDS for a in watchdog.accused):
        return None
    spot = told.at("*")
    if told.kind == "store":
        why = "the store that PyTorch's ranks share went away: its server, mostly the process of rank 0, ended first, in order or not. What rank 0 printed last would tell"
    else:
        why = "PyTorch's process group complains of something that is not known here: what it printed before, and the logs of the other ranks, would tell"
    return Missing("why PyTorch's process group complains", f"`{spot.value[:200]}` ({spot.source}, {spot.where}): {why}", needed=True)
