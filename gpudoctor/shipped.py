"""The tables that come with the program, in `data/`. Read on first use, by whoever knows what one means."""

from __future__ import annotations

import os

_FOLDER = os.path.join(os.path.dirname(__file__), "data")


def text(name: str) -> str:
    """One file of `data/` as it stands."""
    with open(os.path.join(_FOLDER, name), encoding="utf-8") as stream:
        return stream.read()


def rows(name: str) -> list[str]:
    """Its lines without comments and empty ones."""
    return [line for line in text(name).split("\n") if line and not line.startswith("#")]
