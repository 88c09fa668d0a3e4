from collections.abc import Callable
from typing import TypeAlias

# cudaDev, nvmlDev, busId, commId and the words of the three devices; nNodes, localRanks and localRank; or what is still to be read.
Details: TypeAlias = tuple[int, int, str, str, tuple[bytes, bytes, bytes]] | tuple[int, int, int] | bytes
# Pointer, rank, size; `Init START`, `Destroy COMPLETE` or nothing; and what else the line says.
Named: TypeAlias = tuple[str, int, int, bytes, Details]
Timings: TypeAlias = tuple[int, int, bytes, str]  # rank, nranks, seconds, parts

def walk(
    memory: object,
    text: bytes,
    look_for_broken: bool,
    cuts: list[tuple[bytes, bytes, int]],
    told: dict[bytes, set[bytes]],
    fellows: dict[bytes, list[set[bytes]]],
    quiet: frozenset[bytes],
    silent: frozenset[bytes],
    asked: frozenset[bytes],
    naming: frozenset[bytes],
    dull: set[bytes],
    dull_numbered: set[bytes],
    thread: Callable[[bytes], set[bytes]],
    fresh: Callable[[list[tuple[bytes, bytes, int]], set[bytes] | None, bytes, bytes, int], None],
    heard: Callable[[bytes, bytes], bool],
    run_into: list[bytes],
    long_head: int,
    /,
) -> tuple[list[bytes] | None, list[int], list[int], int, int]: ...
def memory() -> object: ...
def forget(memory: object, /) -> None: ...
def present(text: bytes, wanted: bytes, /) -> bytes: ...
def communicator(message: bytes, /) -> Named | None: ...
def timings(message: bytes, /) -> Timings | None: ...
