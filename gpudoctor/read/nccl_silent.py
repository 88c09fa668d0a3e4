"""Which of NCCL's lines of level INFO are passed over before anything else is asked: there may be millions of them."""

from __future__ import annotations

WARNS = b"NCCL WARN "
W, _B, _BAR = b"WB|"  # a letter is found many times faster than a word, as a number faster still: `b"W" in line` fails first to be one
# How lines begin that say nothing we keep: passed over before anything else is asked.
SILENT = frozenset(
    (
        b"Trees", b"Tree ", b"Conne", b"threa", b"P2P C", b"CC Of", b"TUNER", b"PROFI", b"ENV/P", b"[Prox", b"Check", b"TOPO/", b"Topol",
        b"Alloc", b"Loade", b"Initi", b"Assig", b"RAS c", b"Enabl", b"Comm ", b"Launc", b"Memor", b"GIN/P", b"RMA/P",
        b"Send:", b"Recv:",
    )
)  # fmt: skip
# The same of calls, of which there may be millions, but for what NCCL chose for them and a row of its model (TUNING).
CALLS = frozenset((b"AllRe", b"AllGa", b"Reduc", b"Broad", b"Allto", b"Gathe", b"Scatt"))
CHOSE, ROW = b" Bytes -> ", b"Scatter |"
OPCOUNT = b": opCount "  # a call, of which each names its communicator: the first of a thread will do
FAR = 32  # bytes in which that stands
QUIET = SILENT | CALLS


def says_nothing(tail: bytes) -> bool:
    """Is a line of level INFO one that is passed over? Not where another writer's warning ran into it."""
    word = tail[:5]
    return word in QUIET and WARNS not in tail and not (word in CALLS and (tail.find(OPCOUNT, 0, FAR) > 0 or tells(tail)))


def tells(tail: bytes) -> bool:
    """Of calls."""
    return (_B in tail and tail.find(CHOSE) > 0) or (_BAR in tail and tail.find(ROW) > 0)
