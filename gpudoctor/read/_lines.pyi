from collections.abc import Callable

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
