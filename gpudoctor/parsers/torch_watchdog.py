"""Lines of PyTorch's ProcessGroupNCCL about collectives that did not end, torch 1.8 to today, to Watchdog.

A section holds telling lines with their neighbours, all with their prefixes: `[rank3]:` is the rank in the whole job,
`[Rank 1]` and `[PG ID 2 PG GUID 5(tp) Rank 1]` the rank within a process group. Terminals break these long lines
anywhere and several ranks write at once, so a line is tried alone and then with its neighbours; what does not fit the
form in every character is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import Accused, Death, Frame, RankWork, Watchdog, joined_works
from gpudoctor.model import Evidence
from gpudoctor.parsers.torch_blame import MAX_RANK, accused_by, death_by, each_once, unread
from gpudoctor.parsers.torch_reports import reports_by
from gpudoctor.parsers.torch_stalls import stalls_by
from gpudoctor.read.section import Line, Section, Unparsable

# What names the rank within its group, right before a message or (for counts) some words before them.
_NEAR = re.compile(r"\[(?P<group>PG [^\[\]]{0,160}?)?Rank (?P<rank>\d{1,7})\]:?\s{0,2}\Z")
_FAR = re.compile(r"\[(?P<group>PG [^\[\]]{0,160}?)?Rank (?P<rank>\d{1,7})\]:?\s{0,2}(?P<said>[^\[\]]{0,700})\Z")
# What an exception says instead; its rank is that of the group too, which it does not name.
_ABORTED = re.compile(r"(?P<group>(?!))?(?:NCCL )?communicator was aborted on rank (?P<rank>\d{1,7})\.\s{0,3}(?:Original reason for failure was:\s{0,3})?\Z")
_WORK = (
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}),\s?)?OpType=(?P<op>\w{1,40})"
    r"(?:,\s?TensorShape=\[(?P<shape>[\d, ]{0,200})\])?(?:,\s?NumelIn=(?P<numel_in>\d{1,18}),\s?NumelOut=(?P<numel_out>\d{1,18}))?"
    r"(?:,\s?Timeout\(ms\)=(?P<timeout_ms>\d{1,12}))?(?:,\s?(?:\.\.\.|…))?\)"  # who shortens the line by hand
)
_TIMEOUT = re.compile(
    r"(?:(?:Watchdog caught|Caught) collective operation timeout|Original reason for failure was):\s{0,3}" + _WORK + r"(?:\s?ran for (?P<ran_ms>\d{1,12})\s?milliseconds)?"
)
_BLOCKING = re.compile(r"Work\s" + _WORK + r"\s?timed out in blocking wait")
_COUNTS = re.compile(
    r"\b[Ll]ast enqueued (?:NCCL )?work:\s?(?P<enqueued>-1|\d{1,18}),\s?last completed (?:NCCL )?work:\s?"
    r"(?P<completed>-1|\d{1,18})(?P<end>[^\d]|$)"
)
_AT_WORK = re.compile(r"(?:Timeout at NCCL work|detected by watchdog at work(?: sequence id)?):\s?(?P<seq>\d{1,18})(?!\d)")
_TOLD_BY = re.compile(r"from\s{1,3}rank (\d{1,7})(?!\d)")
_ASYNC = re.compile(
    r"(?:Collective\s" + _WORK + r"\s?raised the following async exception:|[Ff]ound async exception when checking for NCCL errors:"
    r"|(?:Process group|NCCL) watchdog thread terminated with exception:|what\(\):\s{0,3}(?=NCCL error))\s?(?P<error>(?:NCCL|CUDA) error[^\n]{0,600})"
)
_STUCK = re.compile(r"(?:ProcessGroupNCCL's|NCCL's|NCCL) watchdog got stuck for (?P<seconds>\d{1,9}) seconds")
_NO_BEAT = re.compile(r"Heartbeat monitor timed out! Process will be terminated|(?:Terminating the process after attempting to dump )?debug info, due to ProcessGroupNCCL watchdog hang")
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("operation timeout", _TIMEOUT),
    ("Original reason for", _TIMEOUT),
    ("blocking wait", _BLOCKING),
    ("last enqueued", _COUNTS),
    ("Last enqueued", _COUNTS),
    ("async exception", _ASYNC),
    ("terminated with exception", _ASYNC),
    ("what():", _ASYNC),
    ("watchdog got stuck", _STUCK),
    ("Heartbeat monitor", _NO_BEAT),
    ("watchdog hang", _NO_BEAT),
)
_TELLING = re.compile(r"WorkNCCL|Watchdog|watchdog|NCCL work|enqueued|async exception|blocking wait|operation timeout|Heartbeat monitor|what\(\): +NCCL")
_BEFORE = re.compile(r"\[rank ?(\d{1,7})\]:?\s{0,2}(?:\[[^\[\]]{0,120}\]\s{0,2})?[^\[\]]{0,160}\Z")
_STRICTLY_BEFORE = re.compile(r"\[rank ?(\d{1,7})\]:?\s{0,2}(?:\[[^\[\]]{0,120}\]\s{0,2})?\Z")
_OWN_FILE = re.compile(r"ProcessGroupNCCL\.cpp:\d+\]|ProcessGroupNCCL's|WorkNCCL\(")
_ENDED = re.compile(r"[Cc]aught collective operation timeout|debug info, due to collective timeout or exception|Some NCCL operations have failed or timed out|Stack trace of the failed collective: *$")
_NAMED = re.compile(r"\[rank ?(\d{1,7})[\]\[]")
_GUID = re.compile(r"GUID (\w{1,60})")
_ID = re.compile(r"PG (?:ID )?(\d{1,9})\b")
_NAME = re.compile(r"\(([^()]{1,80})\)")
_FRAME = re.compile(r"^\s*#(\d{1,3}) (\S.{0,150}?) from (\S.{0,300}?):(\d{1,7})\s*$")
_LAST_ERROR = re.compile(r"^\s*(?:\[rank ?\d+\]:\s?)?Last error:\s*(.{0,400})$")
# How a line may have been broken: lines before, lines after, and what stood where the break is.
_WINDOWS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2), (0, 3), (2, 2), (0, 4), (1, 4), (3, 3))
MAX_JOINED = 4000


class _Hit(NamedTuple):
    """A pattern that fits, the text it fits in (several lines where the terminal broke it), and whose it is."""

    match: re.Match[str]
    text: str
    start: int  # with what names the rank
    last: int  # place of the last line
    rank: int | None  # of the job, by `[rankN]:`
    group_rank: int | None
    group: str | None  # "PG ID 2 PG GUID 5(tp) "
    said: str  # between the rank and the counts

    @property
    def owned(self) -> bool:
        return self.rank is not None or self.group_rank is not None


def parse(section: Section) -> Iterator[Fact | Loss]:
    lines = section.lines
    works: list[RankWork] = []
    accused: list[Accused] = []
    deaths: list[Death] = []
    ours = False
    for place, line in enumerate(lines):
        ours = ours or _OWN_FILE.search(line.text) is not None
        if _TELLING.search(line.text):
            for hit in _hits(lines, place):
                work = _work(section, lines, place, hit)
                if work is not None:
                    works.append(work)
        accused.extend(accused_by(section, line))
        accused.extend(reports_by(section, lines, place))
        accused.extend(stalls_by(section, lines, place))
        death = death_by(section, lines, place)
        if death is not None:
            deaths.append(death)
    works = _placed(works) or _only_ended(section, lines)
    accused += [] if works or accused or deaths else unread(section)
    if not (ours or works or accused or deaths):
        raise Unparsable(f"{section.source}: PyTorch's process group is named, but no whole line of its watchdog is there")
    yield Watchdog(joined_works(works), tuple(dict.fromkeys(accused)), each_once(deaths))


def _hits(lines: tuple[Line, ...], place: int) -> Iterator[_Hit]:
    """Every pattern once, in the smallest window in which it fits together with whose line it is."""
    own = lines[place].text
    wanted = [(word, pattern) for word, pattern in _PATTERNS if word in own]
    done: set[re.Pattern[str]] = set()
    partial: dict[re.Pattern[str], _Hit] = {}
    for before, after in _WINDOWS:
        if wanted and all(pattern in done for _, pattern in wanted):
            return
        first, last = place - before, place + after
        if first < 0 or last >= len(lines) or lines[last].number - lines[first].number != last - first:
            continue
        texts = [line.text for line in lines[first : last + 1]]
        if len(texts) > 1 and sum(map(len, texts)) > MAX_JOINED:
            continue
        for glue in ("", " ") if len(texts) > 1 else ("",):
            text = glue.join(texts)
            start = sum(len(t) + len(glue) for t in texts[:before])
            for word, pattern in wanted or _PATTERNS:
                if pattern in done or word not in text:
                    continue
                hit = _fits(pattern, text, (start, start + len(own)), lines[last].cut, last)
                if hit is None:
                    continue
                if hit.owned and (pattern is not _TIMEOUT or hit.match["ran_ms"]):
                    done.add(pattern)
                    yield hit
                elif pattern not in partial or hit.owned and not partial[pattern].owned:
                    partial[pattern] = hit
    yield from (hit for pattern, hit in partial.items() if pattern not in done)


def _fits(pattern: re.Pattern[str], text: str, own: tuple[int, int], cut: bool, last: int) -> _Hit | None:
    """The last place where it fits; part of it must stand in the line that is asked about, from `own[0]` to `own[1]`."""
    match = None
    for found in pattern.finditer(text):
        if found.start() < own[1] and found.end() > own[0]:
            match = found
    if match is None or cut and match.end() >= len(text) and pattern in (_COUNTS, _ASYNC):
        return None  # the number or the sentence may go on
    start = match.start()
    named = (_FAR if pattern is _COUNTS else _NEAR).search(text, max(0, start - 900), start)
    named = named or _ABORTED.search(text, max(0, start - 200), start)
    said = text[max(0, start - 200) : start]
    if named is not None:
        start, said = named.start(), named["said"] if named.re is _FAR else ""
    # Another line's `[rankN]:` is this one's only where nothing stands between.
    before = _BEFORE.search(text, max(own[0], start - 400), start) if start > own[0] else None
    before = before or _STRICTLY_BEFORE.search(text, max(0, start - 400), start)
    return _Hit(
        match, text, start, last, _rank(before[1]) if before else None, _rank(named["rank"]) if named else None,
        named["group"] if named else None, said,
    )  # fmt: skip


def _rank(digits: str | None) -> int | None:
    return int(digits) if digits is not None and int(digits) < MAX_RANK else None


def _work(section: Section, lines: tuple[Line, ...], place: int, hit: _Hit) -> RankWork | None:
    match = hit.match
    said = match.groupdict()
    group, name = _group(hit.group)
    inside, overall = hit.group_rank, hit.rank
    if overall is None and (group in (None, "0") or name == "default_pg"):
        overall = inside
    line = lines[place]
    fields: dict[str, Any] = {
        "source": section.source,
        "rank": overall,
        "group_rank": inside,
        "group": group,
        "group_name": name,
        "origin": {
            "*": Evidence(section.source, f"line {line.number}", hit.text[hit.start : match.end()].strip()[:240])
        },
    }
    if match.re in (_TIMEOUT, _BLOCKING):
        fields |= {k: int(said[k]) for k in ("seq", "numel_in", "numel_out", "timeout_ms", "ran_ms") if said.get(k)}
        fields |= {"op": said["op"], "shape": said["shape"], "timed_out": True}
    elif match.re is _COUNTS:
        if _continues(lines, hit):
            return None
        at = _AT_WORK.search(hit.said)
        told = _TOLD_BY.search(hit.said)
        fields |= {
            "last_enqueued": max(0, int(said["enqueued"])),
            "last_completed": max(0, int(said["completed"])),
            "seq": int(at["seq"]) if at else None,
            "told_by": _rank(told[1]) if told else None,
            "signalled": "collective timeout from this local rank" in hit.said or None,
            "frames": _frames(lines, place),
        }
    elif match.re is _ASYNC:
        error, _, quoted = said["error"].partition("Last error:")
        quoted = quoted.partition("Exception raised from")[0].strip()
        fields |= {"error": error.strip(), "last_error": quoted or _last_error(lines, place)}
        fields |= {"seq": int(said["seq"]) if said.get("seq") else None, "op": said.get("op")}
    else:
        fields |= {"stuck": True, "stuck_seconds": int(said["seconds"]) if said.get("seconds") else None}
    return RankWork(**fields)


def _only_ended(section: Section, lines: tuple[Line, ...]) -> list[RankWork]:
    """Nothing but the news that a collective failed, of one rank or several: an excerpt without the line that names it."""
    if any("NCCL error" in line.text or "CUDA error" in line.text for line in lines):
        return []
    out: dict[int | None, RankWork] = {}
    for place, line in enumerate(lines):
        if _ENDED.search(line.text) is not None:
            named = _NAMED.search(line.text)
            rank = _rank(named[1]) if named is not None else None
            frames = _frames(lines, place) if "Stack trace" in line.text else None
            known = out.get(rank)
            if known is None or frames and not known.frames:
                out[rank] = RankWork(
                    source=section.source, rank=rank, signalled=True, frames=frames, origin={"*": section.at(line)}
                )
    return list(out.values())


def _continues(lines: tuple[Line, ...], hit: _Hit) -> bool:
    """A count that ends its line, with nothing but digits on the next: the terminal may have cut the number in two."""
    if hit.match["end"] or hit.last + 1 >= len(lines):
        return False
    return lines[hit.last + 1].text.strip().isdigit() and lines[hit.last + 1].number == lines[hit.last].number + 1


def _group(said: str | None) -> tuple[str | None, str | None]:
    """`PG ID 2 PG GUID 5(tp) ` -> ("5", "tp"): the GUID is the same on every rank, the id counts a rank's own groups."""
    if not said:
        return None, None
    guid, number, name = _GUID.search(said), _ID.search(said), _NAME.search(said)
    named = name[1] if name and name[1] not in ("undefined", "") else None
    return (guid[1] if guid else number[1] if number else None), named


def _frames(lines: tuple[Line, ...], place: int) -> tuple[Frame, ...] | None:
    """The stack that follows within a few lines, counted from #0 without a gap."""
    out: list[Frame] = []
    for line in lines[place + 1 : place + 25]:
        found = None if line.cut else _FRAME.match(line.text)
        if found is not None and int(found[1]) == len(out):
            out.append(Frame(found[2], found[3], int(found[4])))
        elif found is not None or out or "detected by watchdog" in line.text:
            break
    return tuple(out) or None


def _last_error(lines: tuple[Line, ...], place: int) -> str | None:
    for at in range(place + 1, min(place + 6, len(lines))):
        found = _LAST_ERROR.match(lines[at].text)
        if found is not None:
            text = found[1].strip() or (
                lines[at + 1].text.strip() if at + 1 < len(lines) and not lines[at + 1].cut else ""
            )
            return text[:400] or None
    return None


def _call(work: RankWork) -> tuple[Any, ...]:
    return (work.seq, work.op, work.numel_in, work.numel_out, work.shape)


def _placed(works: list[RankWork]) -> list[RankWork]:
    """Lines that name only `[Rank N]`, or no rank, go to the entry of the same time-out that says more."""
    from gpudoctor.record import replace

    known = {(w.seq, w.op, w.numel_in) for w in works if w.rank is not None or w.group_rank is not None}
    grouped: dict[int, list[RankWork]] = {}
    same_call: dict[tuple[Any, ...], dict[str | None, RankWork]] = {}
    for work in works:
        if work.group is not None and work.rank is not None:
            grouped.setdefault(work.rank, []).append(work)
    groups_of_rank = {w.rank: {k.group for k in grouped.get(w.rank, ())} for w in works if w.rank is not None}
    for work in works:
        own = groups_of_rank.get(work.rank, set()) if work.rank is not None else set()
        if work.timed_out and len(own) == 1:
            named = next(k for k in grouped[work.rank] if k.group in own) if work.rank is not None else work
            same_call.setdefault(_call(work), {})[named.group] = named
    out = []
    for work in works:
        if work.rank is None and work.group_rank is None:
            if (work.seq, work.op, work.numel_in) in known:
                continue
        elif work.group is None:
            same = [
                k
                for k in grouped.get(-1 if work.rank is None else work.rank, ())
                if work.seq is None or k.seq is None or k.seq == work.seq
            ]
            groups = {k.group: k for k in same}
            exact = {k.group: k for k in same if k.seq is not None and k.seq == work.seq}
            chosen = exact if len(exact) == 1 else groups
            if not chosen and work.timed_out:
                # The lines of its own that name the group are not there; ranks that wait in the same call name it.
                chosen = dict(same_call.get(_call(work), {}))
            if len(chosen) == 1:
                (other,) = chosen.values()
                work = replace(work, group=other.group, group_name=other.group_name)
        out.append(work)
    return out
