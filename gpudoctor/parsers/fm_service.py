"""`systemctl show nvidia-fabricmanager` (KEY=VALUE lines) to FabricManager."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import FabricManager, FabricManagerEntry
from gpudoctor.read.section import Line, Section, Unparsable

_KEYS = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus")


def parse(section: Section) -> Iterator[Fact | Loss]:
    found: dict[str, tuple[str, Line]] = {}
    for line in section:
        name, sign, value = line.text.strip().partition("=")
        # A cut line may end in mid-word, and no word of systemd's says where it ends.
        if sign and name in _KEYS and value and not line.cut:
            found.setdefault(name, (value, line))
    if "LoadState" not in found and "ActiveState" not in found:
        raise Unparsable("no state of a service")
    load = found["LoadState"][0] if "LoadState" in found else None
    active = found["ActiveState"][0] if "ActiveState" in found else None
    sub = found["SubState"][0] if "SubState" in found else None
    origin = {"*": section.at(next(iter(found.values()))[1])}
    for field, key in (("installed", "LoadState"), ("active", "ActiveState"), ("state", "ActiveState")):
        if key in found:
            origin[field] = section.at(found[key][1])
    installed = {"not-found": False, "loaded": True}.get(load or "")  # masked, error, bad-setting: a unit that may be there
    yield FabricManager(
        FabricManagerEntry(
            installed=installed,
            active=None if active is None or installed is False else active in ("active", "reloading"),
            state=_words(load, active, sub),
            origin=origin,
        )
    )


def _words(load: str | None, active: str | None, sub: str | None) -> str | None:
    """As `systemctl status` words it: `active (running)`; the load state where that is the trouble."""
    if load is not None and load != "loaded":
        return load
    return f"{active} ({sub})" if active and sub and sub != active else active
