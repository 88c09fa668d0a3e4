"""Quantities with their unit, as a policy writes them: `"280 GB/s"`. Without a unit a number is a guess, and is refused."""

from __future__ import annotations

import re

from gpudoctor.record import Record

_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(\S.*?)?\s*")


class Quantity(Record):
    """A kind of value: the unit it is kept in, and what each accepted unit is of it."""

    unit: str
    accepted: dict[str, float]
    example: str


RATE = Quantity("GB/s", {"GB/s": 1.0, "MB/s": 1e-3, "TB/s": 1e3}, '"280 GB/s"')
BITS = Quantity("Gb/s", {"Gb/s": 1.0, "Gbit/s": 1.0, "Gbps": 1.0, "Mb/s": 1e-3}, '"400 Gb/s"')
TIME = Quantity("us", {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}, '"40 us"')


class WrongUnit(Exception):
    """What is wrong with a quantity, in words."""


def read(value: object, kind: Quantity) -> float:
    """`"330 GB/s"` to 330.0 in the kind's own unit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise WrongUnit(f'has no unit: write "{value:g} {kind.unit}"')
    if not isinstance(value, str):
        raise WrongUnit(f"must be a text with a unit, like {kind.example}")
    found = _TEXT.fullmatch(value)
    if found is None:
        raise WrongUnit(f"{value!r} is no amount: write it like {kind.example}")
    amount, unit = float(found[1]), found[2]
    if unit is None:
        raise WrongUnit(f'{value!r} has no unit: write "{amount:g} {kind.unit}"')
    if unit not in kind.accepted:
        raise WrongUnit(f"{value!r}: {_why(unit, amount, kind)}")
    if not 0 < amount * kind.accepted[unit] < 1e9:
        raise WrongUnit(f"{value!r} must be above 0")
    return amount * kind.accepted[unit]


def _why(unit: str, amount: float, kind: Quantity) -> str:
    units = " or ".join(u for u in kind.accepted if u.isascii())
    if kind is RATE and unit in BITS.accepted:
        return (
            f"{unit} counts bits; {amount:g} {unit} are {amount * BITS.accepted[unit] / 8:g} GB/s (units here: {units})"
        )
    if kind is BITS and unit in RATE.accepted:
        return f"{unit} counts bytes; {amount:g} {unit} are {amount * RATE.accepted[unit] * 8:g} Gb/s (units here: {units})"
    if unit in ("GiB/s", "MiB/s"):
        return f"{unit} is not used here: GB/s are 10^9 bytes a second (units here: {units})"
    near = next((u for u in kind.accepted if u.lower() == unit.lower()), None)
    return f"the unit {unit} is not known" + (f"; did you mean {near}?" if near else f" (units here: {units})")
