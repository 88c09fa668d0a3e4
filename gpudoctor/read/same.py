"""The same file given twice, or its content under two names: what stands in it happened once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gpudoctor.read.source import Document

_BEGINNING = 4096  # bytes


class Seen:
    """What was read so far, by its size, how it begins, and the bytes themselves."""

    def __init__(self) -> None:
        # Logs of thousands of ranks may all have one size: to compare each with each would take hours.
        self._known: dict[tuple[int, int], list[Document]] = {}
        self._files: dict[tuple[int, int], str] = {}

    def file(self, source: Document) -> str | None:
        """The name under which the very same file was read before."""
        if source.file is None:
            return None
        known = self._files.get(source.file)
        self._files.setdefault(source.file, source.name)
        return known

    def content(self, source: Document, size: int) -> str | None:
        """The name under which the same bytes were read before; what can be read only once is never asked again."""
        if not source.again or size <= 0:
            return None
        with suppress(OSError):
            known = self._known.setdefault((size, hash(_beginning(source.chunks()))), [])
            for other in known:
                if _equal(source.chunks(), other.chunks()):
                    return other.name
            known.append(source)
        return None


def _beginning(chunks: Iterator[bytes]) -> bytes:
    """The same of the same bytes, however they are cut."""
    begun = b""
    for chunk in chunks:
        begun += chunk[: _BEGINNING - len(begun)]
        if len(begun) == _BEGINNING:
            break
    return begun


def _equal(a: Iterator[bytes], b: Iterator[bytes]) -> bool:
    """Are both the same bytes, however they are cut? Ends at the first that differs."""
    left = right = b""
    while True:
        if not left:
            left = next((chunk for chunk in a if chunk), b"")
        if not right:
            right = next((chunk for chunk in b if chunk), b"")
        size = min(len(left), len(right))
        if not size:
            return not left and not right
        if left[:size] != right[:size]:
            return False
        left, right = left[size:], right[size:]


def told(copies: list[tuple[str, str]]) -> str:
    """One sentence for all of them."""
    shown = [f"{name} (as {first})" if name != first else f"{name} (given twice)" for name, first in copies[:3]]
    more = f" and {len(copies) - 3} more" if len(copies) > 3 else ""
    return f"read once, since the same was given before, byte for byte: {', '.join(shown)}{more}"
