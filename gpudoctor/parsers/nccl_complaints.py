"""Lines in which NCCL says that something is wrong: each is kept once, with how often it came."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.facts.nccl import NcclMessage
from gpudoctor.nccl_messages import DOES_WITHOUT, HARMLESS, Family, classify, classify_again
from gpudoctor.parsers.nccl_place import Place, evidence
from gpudoctor.parsers.nccl_state import Proc
from gpudoctor.record import replace

Where = Callable[[], Place]  # found only where asked for
MAX_SAME = 20_000  # lines remembered by their words
MAX_SAME_BYTES = 400
MAX_SHAPES = 4000
MAX_MESSAGES = 5000  # of one tier: each rank's echo is kept, and none of them takes the place of a cause
_ONE_DIGIT = str.maketrans("123456789", "0" * 9)
# Lines of level INFO whose words may be a family's; others are never complaints.
INFO_TELLS = frozenset((b"P2P i", b"Could", b"peer ", b"ncclM", b"Call ", b"socke", b"Faile", b"cuMem", b"Mism", b"NVLin", b"Inval", b"User ", b"Unabl"))

# How the lines begin that show what a call gave back.
RESULT_TELLS = frozenset((b"group", b"enque", b"misc/", b"init.", b"proxy", b"trans", b"graph", b"boots", b"chann", b"plugi", b"socke"))
# A result from within a call. NCCL may have gone on without it: it counts only where no communicator came about afterwards.
_DEEP = re.compile(rb"((?:[\w.+-]{1,80}/){0,20}\w{1,60}\.cc:\d+ (?:\(\w{1,80}\) )?-> [1-6])(?: \[\w+ [Tt]hread\])?[ \r]*\n")


def deep(proc: Proc, message: bytes, where: Where) -> None:
    """What a function deep within NCCL gave back, of a process that has made no communicator."""
    found = _DEEP.match(message) if proc.deep is None and not any(c.completed for c in proc.all) else None
    if found is not None:
        proc.deep = (found[1].decode(), where())


class Heard:
    """A complaint and how often it came."""

    def __init__(self, message: NcclMessage) -> None:
        self.message = message
        self.times = 1


class Complaints:
    """All complaints of one source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._heard: dict[tuple[object, ...], Heard] = {}
        self._same: dict[tuple[object, ...], Heard | None] = {}  # what became of a line, by its words
        self._kept: dict[int, int] = {}  # messages by tier
        self._classified: dict[tuple[str, str | None], Family | None] = {}  # by words with every digit 0, and file

    @property
    def of_rccl(self) -> bool:
        """Did a file of RCCL's, which is made from NCCL's, or a call of HIP complain?"""
        heard = [h.message for h in self._heard.values()]
        return any(m.family in ("hip", "hip-file") or m.file is not None and ("hipify/" in m.file or "rccl/" in m.file) for m in heard)

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, level: str, proc: Proc, dev: int | None, file: str | None, message: bytes, where: Where) -> None:
        """One line; of level INFO only where its words are a known family's."""
        quick = (id(proc), dev, file, level, message)
        if quick in self._same:  # a process says it of each of its communicators
            again = self._same[quick]
            if again is not None:
                again.times += 1
            return
        heard = self._hear(level, proc, dev, file, message, where)
        if len(self._same) < MAX_SAME and len(message) < MAX_SAME_BYTES:
            self._same[quick] = heard

    def _hear(self, level: str, proc: Proc, dev: int | None, file: str | None, message: bytes, where: Where) -> Heard | None:
        said = message.decode("utf-8", "replace")
        text = said.strip()
        words = said[:1000]
        shape = (words.translate(_ONE_DIGIT), file)
        if shape in self._classified:
            found = classify_again(words, file, self._classified[shape])
        else:
            found = classify(words, file)
            if len(self._classified) < MAX_SHAPES:
                self._classified[shape] = found[0] if found is not None else None
        if found is None and level == "INFO":
            return None
        family, fields = found if found is not None else (None, {})
        tier = HARMLESS if family is None else DOES_WITHOUT if family.ends_if_last else family.tier
        key = (family.id if family else text[:120], id(proc), dev, file, tuple(sorted(fields.items())) if family else ())
        known = self._heard.get(key)
        if known is not None:
            known.times += 1
        elif self._kept.get(tier, 0) < MAX_MESSAGES:
            self._kept[tier] = self._kept.get(tier, 0) + 1
            spot = where()
            message_ = NcclMessage(
                family=family.id if family else "unknown",
                slug=family.slug if family else None,
                tier=tier,
                text=text,
                source=self.source,
                line=spot[0],
                level=level,
                host=proc.host,
                pid=proc.pid,
                dev=dev,
                file=file,
                fields=fields,
                origin={"*": evidence(self.source, spot)},
            )
            known = self._heard[key] = Heard(message_)
        return known

    def messages(self) -> tuple[NcclMessage, ...]:
        return tuple(replace(h.message, times=h.times) for h in self._heard.values())
