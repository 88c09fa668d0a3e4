"""What lines of PyTorch, launchers and the kernel, and the words of people, ask for: the table in data/sayings.toml."""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from gpudoctor import shipped
from gpudoctor.record import KeyedRecord

# A setting by its name, as in `NCCL_P2P_DISABLE=1`, and NCCL's own line on one, as it stands in a log.
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]{2,60})(?:\s*=\s*\S{0,200})?")
_TAKEN = re.compile(r"(?:.{0,400}?\bNCCL INFO )?(NCCL_[A-Z0-9_]{1,60})\s+set (?:by environment )?to\s+(.{0,200}?)\.?\s*")
# `proxy.cc:965 -> 6 [Progress Thread]`, `group.cc:64 (ncclGroupEnd) -> 2`: every function hands a result up so.
_RESULT = re.compile(r"(?:.{0,400}?\bNCCL INFO )?/?(?:[\w.+-]{1,80}/){0,20}[\w.+-]{1,80}\.(?:cc|cu|h):\d{1,6} (?:\(\w{1,80}\) )?-> (\d{1,3})(?: \[[\w /]{1,40}\])?\s*")
_RESULTS = {  # ncclResult_t of nccl.h: its name, what it means, and which causes ask for it
    1: ("ncclUnhandledCudaError", "a call of CUDA failed", ("cuda-error", "fabric", "p2p-unsupported")),
    2: ("ncclSystemError", "a call into the system failed: a socket, the RDMA library, /dev/shm or the host's memory", ("network-error", "shm", "memlock")),
    3: ("ncclInternalError", "NCCL's own check failed, mostly because another rank went away in the middle of a call", ("peer-died", "version-mismatch")),
    4: ("ncclInvalidArgument", "an argument of the call is not allowed", ("rank-mismatch",)),
    5: ("ncclInvalidUsage", "NCCL was called in a way that it refuses, mostly two ranks on one GPU, ranks that disagree, or no network interface", ("duplicate-gpu", "rank-mismatch", "no-interface")),
    6: ("ncclRemoteError", "remote error: a peer or the way to it went away", ("peer-died", "network-error")),
    7: ("ncclInProgress", "in progress: a call on a communicator that does not block is not done yet, which is no fault", ()),
}  # fmt: skip
# Who does it, before a word on what is done: `job hangs`, `my training is slow`.
_WHO = re.compile(r"(?:(?:my|our|the|a|an|one|all|nccl|pytorch|torch|distributed|multi-gpu|job|jobs|training|run|program|process|script|rank|ranks)\s)+(?:(?:is|are|was|just|gets?|got)\s){0,2}")
_PEER = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
# How the driver and the Fabric Manager print a number: `Xid (PCI:0000:3b:00): 79, …`, `SXid (PCI:…): 20034, Fatal`,
# `detected NVSwitch fatal error 20034`.
_NUMBER = re.compile(r"\b(S?Xid)\b(?: \([^()]{1,80}\):?|[ :#=-]{0,3}) ?(\d{1,6})(?!\d)|NVSwitch (?:non-)?fatal error (\d{4,6})(?!\d)", re.I)


class Saying(KeyedRecord):
    """Lines or words that ask for the same causes."""

    id: str
    meaning: str
    causes: tuple[str, ...]  # slugs
    pattern: str | None = None
    words: tuple[str, ...] = ()
    example: str = ""
    first: bool = False  # goes before NCCL's own messages, which have the same words
    hint: bool = False  # a line that may stand in a healthy log: causes are named, and none is told in full
    steps: tuple[tuple[str, str], ...] = ()  # what to do, and its command


@lru_cache(maxsize=1)
def sayings() -> tuple[Saying, ...]:
    """In order: the first that fits a line takes it."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    table = tomllib.loads(shipped.text("sayings.toml"))
    return tuple(
        Saying(
            id=name, meaning=e["meaning"], causes=tuple(e["causes"]), pattern=e.get("pattern"), words=tuple(e.get("words", ())),
            example=e.get("example", ""), first=e.get("first", False), hint=e.get("hint", False),
            steps=tuple((words, command) for words, command in e.get("steps", ())),
        )
        for name, e in table.items()
    )  # fmt: skip


def of_line(text: str) -> Saying | None:
    """Whose line this is; of several lines the first that is known."""
    return next((s for line in text.splitlines() for s in sayings() if s.pattern is not None and re.search(s.pattern, line)), None)


def of_result(text: str) -> Saying | None:
    """NCCL's line on the result of a call, whose meaning is in its number alone."""
    found = _RESULT.fullmatch(text.strip())
    known = _RESULTS.get(int(found[1])) if found is not None else None
    if found is None or known is None:
        return None
    name, words, causes = known
    echo = "" if int(found[1]) == 7 else (
        " The line is an echo: each function that the result passes through prints one, so it names no cause. What does is NCCL's WARN line above it, "
        "on the rank that complained first; where there is none, run again with NCCL_DEBUG=WARN."
    )  # fmt: skip
    return Saying(id="nccl-result", meaning=f"NCCL's result {found[1]} ({name}), handed up from call to call: {words}.{echo}", causes=causes, hint=True)


def of_word(text: str) -> Saying | None:
    """A word that is all that was asked for, with or without who does it; or a setting, by its name or as NCCL prints it."""
    word = " ".join(text.lower().split()).strip("?!.,;:'\"")
    who = _WHO.match(word[:200])
    wanted = (word, word[who.end() :]) if who is not None else (word,)
    known = next((s for w in wanted for s in sayings() if w in s.words), None)
    return known or _taken(text.strip()) or _setting(text.strip())


def _taken(text: str) -> Saying | None:
    """NCCL's own word that it took a setting. It prints no other names than it reads, or a plug-in of its own."""
    found = _TAKEN.fullmatch(text)
    if found is None:
        return None
    name, value = found[1], found[2][:80]
    known = _setting(name)
    told = f"NCCL tells that it took {name}={value}, from the environment or from /etc/nccl.conf or ~/.nccl.conf: it prints the same words for all. "
    if known is None:
        return Saying(id="setting", meaning=f"{told}No release that was read here knows this name: a newer NCCL's, or a plug-in's.", causes=("nccl-env",))
    return Saying(id="setting", meaning=told + known.meaning, causes=known.causes)


def _setting(text: str) -> Saying | None:
    found = _SETTING.fullmatch(text)
    if found is None:
        return None
    name = found[1]
    if name in _PEER:
        return Saying(id="setting", meaning=f"{name} says whether and over which ways NCCL goes from GPU to GPU directly.", causes=("p2p-disabled-env", "p2p-not-used"))
    from gpudoctor.nccl_variables import meant, unread, variables, written

    known = variables().get(name)
    if known is None:
        near = meant(name)
        return Saying(id="setting", meaning=f"No release of NCCL knows {name}, and NCCL passes such a name over without a word; {near} may be meant.", causes=("nccl-env",)) if near else None
    gone = unread(name, (99,)) if known.until else None
    since = f" It {gone}." if gone else f" NCCL {written(known.since)} and later read it." if known.since else ""
    default = "" if gone or not known.default else " Without it NCCL decides." if known.default == "auto" else f" Without it NCCL takes {known.default} (in the newest release that was read)."
    words = f"{name} is a setting of NCCL's; gpudoctor check reads it from the environment, /etc/nccl.conf and NCCL's log.{since}{default}"
    return Saying(id="setting", meaning=words, causes=("nccl-env",))


def number_of(text: str) -> tuple[str, int] | None:
    """The kind and number of the driver's or a switch's error in a line: ("xid", 79)."""
    found = _NUMBER.search(text)
    if found is None:
        return None
    return ("sxid", int(found[3])) if found[3] else (found[1].lower(), int(found[2]))
