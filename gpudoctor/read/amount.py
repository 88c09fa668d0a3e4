"""How many bytes, in words."""

from __future__ import annotations


def amount(size: int) -> str:
    """`812 bytes`, `3.1 MB`, `7.25 GB`: three digits, powers of ten."""
    if size < 1000:
        return f"{size} byte{'s' if size != 1 else ''}"
    value, unit = size / 1e3, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1e3, larger
    return f"{value:.3g} {unit}"
