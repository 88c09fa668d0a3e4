"""How NVML is asked: one call at a time, of which each may fail on its own, and what came of it as plain values."""

from __future__ import annotations

from typing import Any


def words(error: BaseException) -> str:
    """An error in the driver's words, short."""
    return str(error)[:200]


class Asker:
    """Calls NVML and keeps the reasons of what failed."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.errors: dict[str, str] = {}

    def __call__(self, name: str, *args: Any) -> Any:
        """One call by its name without `nvmlDevice`; None where it fails."""
        try:
            return getattr(self.nvml, name if name.startswith("nvml") else f"nvmlDevice{name}")(*args)
        except Exception as error:  # NVMLError, or a pynvml older than the call
            self.errors.setdefault(name, words(error))
            return None

    def fields(self, handle: Any, *ids: Any) -> list[int | float | None]:
        """Field values in order; None where one is not supported."""
        values = self("GetFieldValues", handle, list(ids))
        if values is None:
            return [None] * len(ids)
        return [field_value(value) for value in values]


def field_value(value: Any) -> int | float | None:
    """The number in a field of whatever type; None where it was not to be had."""
    if value.nvmlReturn != 0:
        return None
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    kind = int(value.valueType)
    found = getattr(value.value, names[kind]) if 0 <= kind < len(names) else None
    return found if isinstance(found, (int, float)) else None


def plain(value: Any) -> Any:
    """Old pynvml releases return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
