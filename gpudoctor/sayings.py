"""What lines of PyTorch, launchers and the kernel, and the words of people, ask for: the table in data/sayings.toml."""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from gpudoctor import shipped
from gpudoctor.record import KeyedRecord

# A setting by its name, as in `NCCL_P2P_DISABLE=1`.
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]{2,60})(?:\s*=\s*\S{0,200}|\s+set by environment to\s.{0,200})?", re.S)
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
            example=e.get("example", ""), first=e.get("first", False),
        )
        for name, e in table.items()
    )  # fmt: skip


def of_line(text: str) -> Saying | None:
    """Whose line this is; of several lines the first that is known."""
    return next((s for line in text.splitlines() for s in sayings() if s.pattern is not None and re.search(s.pattern, line)), None)


def of_word(text: str) -> Saying | None:
    """A word that is all that was asked for, or the name of a setting."""
    word = " ".join(text.lower().split()).strip("?!.,;:'\"")
    known = next((s for s in sayings() if word in s.words), None)
    return known or _setting(text.strip())


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
