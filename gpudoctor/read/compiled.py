"""What is compiled (_lines.c) where there was a compiler when gpudoctor was installed; elsewhere the same in Python, slower."""

from __future__ import annotations

__all__ = ["forget", "memory", "present", "walk"]

try:
    from gpudoctor.read._lines import forget, memory, present, walk
except ImportError:
    walk = memory = forget = None  # type: ignore[assignment]  # gpudoctor.read.nccl_cut has it in Python

    def present(text: bytes, wanted: bytes, /) -> bytes:
        """Those of the wanted bytes that stand in the text, in their order, and 0xff for any that is not ASCII."""
        found = bytes(byte for byte in wanted if byte in text)
        return found if text.isascii() else found + b"\xff"
