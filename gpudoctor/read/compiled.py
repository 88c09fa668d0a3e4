"""What is compiled (_lines.c) where there was a compiler when gpudoctor was installed; elsewhere the same in Python, slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.read._lines import Named, Timings

__all__ = ["communicator", "forget", "memory", "present", "timings", "walk"]

try:
    from gpudoctor.read._lines import communicator, forget, memory, present, timings, walk
except ImportError:
    walk = memory = forget = None  # type: ignore[assignment]  # gpudoctor.read.nccl_cut has it in Python

    def present(text: bytes, wanted: bytes, /) -> bytes:
        """Those of the wanted bytes that stand in the text, in their order, and 0xff for any that is not ASCII."""
        found = bytes(byte for byte in wanted if byte in text)
        return found if text.isascii() else found + b"\xff"

    def communicator(message: bytes, /) -> Named | None:
        """gpudoctor.parsers.nccl_pair reads it by its expressions."""
        return None

    def timings(message: bytes, /) -> Timings | None:
        """gpudoctor.parsers.nccl_figures reads it by its expression."""
        return None
