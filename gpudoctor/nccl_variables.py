"""The variables that NCCL reads: since which release, until which, and by which name one may be meant that it does not read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gpudoctor import shipped

_OLDEST = (2, 9)  # releases that nobody runs any more: what ended before is not read, whichever release it is
# What took the place of a variable that is gone.
_INSTEAD = {
    "NCCL_IB_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_CUDA_SUPPORT": "NCCL_NET_GDR_LEVEL",
    "NCCL_WORK_FIFO_DEPTH": "NCCL_WORK_FIFO_BYTES",
    "NCCL_THREAD_THRESHOLD": "NCCL_THREAD_THRESHOLDS",
    "NCCL_LL_THRESHOLD": "NCCL_PROTO",
    "NCCL_TREE_THRESHOLD": "NCCL_ALGO",
    "NCCL_RINGS": "NCCL_GRAPH_FILE",
    "NCCL_SHARED_BUFF_COUNT": "NCCL_NCHANNELS_PER_NET_PEER",
}
_WORDS = {"PROTOCOL": "PROTO", "PROTOCOLS": "PROTO", "ALGORITHM": "ALGO", "ALGORITHMS": "ALGO", "CHANNELS": "NCHANNELS", "COUNT": "CNT"}
_NEAR = 0.88


class Variable(NamedTuple):
    """One of them, as far as the sources tell."""

    name: str
    since: tuple[int, ...] = ()  # (): before 2.5
    until: tuple[int, ...] = ()  # (): read by the newest
    default: str = ""  # a number, or `auto`


@lru_cache(maxsize=1)
def variables() -> dict[str, Variable]:
    """By name."""
    out = {}
    for row in shipped.rows("nccl-variables.txt"):
        name, since, until, default = (*row.split(), "-", "-", "-")[:4]
        out[name] = Variable(name, _release(since), _release(until), default if default != "-" else "")
    return out


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")) if text != "-" else ()


def written(release: tuple[int, ...]) -> str:
    """(2, 18) -> `2.18`"""
    return ".".join(str(part) for part in release[:2])


def unread(name: str, release: tuple[int, ...]) -> str | None:
    """Why NCCL of this release, () where it is not known, passes a variable over; None where it reads it or that is not known."""
    known = variables().get(name)
    if known is None:
        return None
    have = release[:2]
    if known.until and (have > known.until or not have and known.until < _OLDEST):
        instead = _INSTEAD.get(name)
        return f"is read by NCCL up to {written(known.until)} only" + (f"; later releases have {instead}" if instead else "")
    if known.since and have and have < known.since:
        return f"is read by NCCL {written(known.since)} and later only"
    return None


def meant(name: str) -> str | None:
    """The variable that a name may stand for which no release reads; None where none is near."""
    known = variables()
    words = [_WORDS.get(word, word) for word in name.split("_")[1:]]
    for order in (words, [*words[1:], *words[:1]]):  # DISABLE_P2P for P2P_DISABLE
        for other in (_joined(order), _opposite(order)):
            if other in known:
                return other + ("=0" if other.endswith("_ENABLE") and "DISABLE" in words else "")
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=_NEAR)
    return _INSTEAD.get(near[0], near[0]) if near else None


def _joined(words: list[str]) -> str:
    return "_".join(("NCCL", *words))


def _opposite(words: list[str]) -> str:
    turned = {"DISABLE": "ENABLE", "ENABLE": "DISABLE", "DISABLED": "DISABLE", "ENABLED": "ENABLE"}
    return _joined([*words[:-1], turned.get(words[-1], words[-1])]) if words else ""
