"""The JSON that NCCL's RAS service answers (SET FORMAT json, NCCL 2.28.7 and later) to Ras."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import Ras, RasAnswer, RasComm, RasCounts, RasRank
from gpudoctor.read.section import Section, Unparsable
from gpudoctor.read.text import clean

_RESULTS = {
    1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument", 5: "invalid usage",
    6: "remote error (another process went away, or the network failed)",
}  # fmt: skip
_IN_PROGRESS = 7
MOST = 1 << 20


def parse(section: Section) -> Iterator[Fact | Loss]:
    where = f"line {section.lines[0].number}" if section.lines else "the document"
    answers = []
    for said in _documents(section):
        if isinstance(said.get("communicators"), list):
            answers.append(_answer(section, where, said))
    if not answers:
        raise Unparsable(f"{section.source}: the JSON of a RAS answer, but cut or damaged ({where})")
    yield Ras(tuple(answers))


def _documents(section: Section) -> Iterator[dict[str, Any]]:
    text = section.content.decode("utf-8-sig", "replace") if section.content else section.text
    text = text.lstrip()
    if not text.startswith("{"):
        text = "{" + text  # the brace stood on a line of its own
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        try:
            said, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(said, dict):
            yield said
        at = text.find("{", end)
        if at < 0:
            return


def _answer(section: Section, where: str, said: dict[str, Any]) -> RasAnswer:
    ras = said.get("ras")
    return RasAnswer(
        source=section.source,
        nccl_version=_text(said.get("nccl_version")),
        timeouts=_whole(ras.get("timeouts_count")) if isinstance(ras, dict) else None,
        comms=tuple(
            _comm(section, place, c) for place, c in enumerate(said["communicators"][:20_000]) if isinstance(c, dict)
        ),
        origin={"*": section.spot(where, f"RAS answer of {_text(said.get('timestamp')) or 'unknown time'}")},
    )


def _comm(section: Section, place: int, said: dict[str, Any]) -> RasComm:
    ranks = [r for r in _list(said.get("ranks")) if isinstance(r, dict) and _whole(r.get("rank")) is not None]
    away = [r for r in _list(said.get("missing_ranks")) if isinstance(r, dict) and _whole(r.get("rank")) is not None]
    counts = _counts(ranks)
    failed = [_who(r, why) for r in ranks if (why := _wrong(r))]
    missing = [_who(r, _absence(r)) for r in away]
    errors = [word for word, there in (("INCOMPLETE", missing), ("ERROR", failed), ("MISMATCH", counts)) if there]
    name = _text(said.get("hash"))
    return RasComm(
        id=name.removeprefix("0x") if name else None,
        size=_whole(said.get("size")),
        errors=" ".join(errors) or "OK",
        counts=tuple(counts),
        missing=tuple(missing),
        failed=tuple(failed),
        origin={
            "*": section.spot(
                f"communicators[{place}]",
                f"hash {name}, size {said.get('size')}, {len(ranks)} ranks, {len(away)} missing"
                + "".join(f"; {c.ranks} ranks at {c.operation} {c.upto}" for c in counts[:6]),
            )
        },
    )


def _counts(ranks: list[dict[str, Any]]) -> list[RasCounts]:
    """Only operations in which the ranks differ, as the text form lists them: most frequent first."""
    table: dict[str, dict[int, list[RasRank]]] = {}
    for rank in ranks:
        counted = rank.get("collective_counts")
        for operation, count in counted.items() if isinstance(counted, dict) else ():
            number = _whole(count)
            if number is not None:
                table.setdefault(clean(str(operation))[:40], {}).setdefault(number, []).append(_who(rank, None))
    out = []
    for operation, by_count in table.items():
        if len(by_count) > 1:
            for count, who in sorted(by_count.items(), key=lambda item: (-len(item[1]), item[0])):
                out.append(RasCounts(operation, count, len(who), tuple(who)))
    return out


def differs(answer: bytes) -> bool:
    """Does any communicator of one answer, text or JSON, have ranks that count differently?"""
    if b"MISMATCH" in answer:
        return True
    if b'"collective_counts"' not in answer:
        return False
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    comms = _list(said.get("communicators")) if isinstance(said, dict) else []
    return any(
        _counts([r for r in _list(c.get("ranks")) if isinstance(r, dict) and _whole(r.get("rank")) is not None])
        for c in comms
        if isinstance(c, dict)
    )


def _who(said: dict[str, Any], why: str | None) -> RasRank:
    gpu = _whole(said.get("cuda_dev"))
    return RasRank(
        int(said["rank"]), _text(said.get("host")), _whole(said.get("pid")), None if gpu is None else str(gpu), why
    )


def _wrong(said: dict[str, Any]) -> str | None:
    status = said.get("status")
    status = status if isinstance(status, dict) else {}
    for key, words in (("async_error", "asynchronous error"), ("init_state", "initialisation")):
        code = _whole(status.get(key))
        if code not in (None, 0, _IN_PROGRESS):
            return f"{words}: {_RESULTS.get(int(code or 0), f'code {code}')}"
    return "aborted" if status.get("abort_flag") is True else None


def _absence(said: dict[str, Any]) -> str:
    status = said.get("status")
    status = status if isinstance(status, dict) else {}
    if status.get("considered_dead") is True:
        return "dead"
    return "unresponsive" if status.get("unresponsive") is True else "no data"


def _list(said: Any) -> list[Any]:
    return said[:MOST] if isinstance(said, list) else []


def _whole(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 63 else None


def _text(said: Any) -> str | None:
    return clean(said[:200]).strip() or None if isinstance(said, str) else None
