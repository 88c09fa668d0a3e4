"""The same file given twice, or its content under two names: what stands in it happened once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gpudoctor.read.source import Document


class Seen:
    """What was read so far, by its size and by the bytes themselves."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[_Read]] = {}  # not asked for their sums as long as there is one of a size
        self._by_sum: dict[tuple[int, bytes], list[Document]] = {}
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
        new = _Read(source, source.mark() if source.mark is not None else None)
        same_size = self._by_size.setdefault(size, [])
        near = [one for one in same_size if None in (one.mark, new.mark) or one.mark == new.mark]
        same_size.append(new)
        # Of hundreds of files of one size each is read once more, not once for each other.
        for one in (*(one for one in near if not one.summed), new) if near else ():
            one.summed = True
            with suppress(OSError):
                known = self._by_sum.setdefault((size, _sum(one.source.chunks())), [])
                if known and one is new and _equal(source.chunks(), known[0].chunks()):
                    return known[0].name
                known.append(one.source)
        return None


class _Read:
    def __init__(self, source: Document, mark: int | None) -> None:
        self.source = source
        self.mark = mark
        self.summed = False


def _sum(chunks: Iterator[bytes]) -> bytes:
    import hashlib

    whole = hashlib.blake2b(digest_size=16)
    for chunk in chunks:
        whole.update(chunk)
    return whole.digest()


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
