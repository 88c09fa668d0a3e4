"""A dump of PyTorch's flight recorder (pickle or JSON) to FlightRecorder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.hang import Call, Dump, FlightRecorder, Frame, GroupStatus
from gpudoctor.parsers import plain_pickle
from gpudoctor.read.section import Section, Unparsable
from gpudoctor.read.text import clean
from gpudoctor.record import replace

MAX_CALLS = 200_000
MAX_RANK = 1 << 20
KEPT = 64  # finished calls of one group, the last ones: a hang is where the ranks part, and that is at the end
MAX_FRAMES = 48
_RANK = re.compile(r"rank[_.-]?(\d{1,7})(?!\d)|(?<![\d.])(\d{1,7})(?:\.(?:pkl|pickle|json|bin|trace))?$", re.I)
_OWN = re.compile(r'"(?:pg_config|pg_status|collective_seq_id|record_id|profiling_name)"\s*:')
_STATES = ("scheduled", "started", "completed")


def parse(section: Section) -> Iterator[Fact | Loss]:
    if section.lines:
        yield from _pasted(section)
    else:
        yield from _dump(section, _value(section), section.source)


def _pasted(section: Section) -> Iterator[Fact | Loss]:
    """JSON among other text: lines above it may be missing (its first brace tells nothing), and something may follow."""
    text = "\n".join(line.text for line in section.lines)
    if _OWN.search(text) is None:
        return  # a `"version": "2.1"` of something else
    start = text.lstrip()
    try:
        said, _ = json.JSONDecoder().raw_decode(start if start[0] in "{[" else "{" + start)
    except (ValueError, RecursionError) as error:
        where = f"from line {section.lines[0].number} on"
        raise Unparsable(f"{section.source}: a flight recorder's JSON {where} is cut or damaged") from error
    # A text may hold several: only the command above each says whose it is.
    yield from _dump(section, said, section.command or section.source)


def _dump(section: Section, said: Any, named: str) -> Iterator[Fact | Loss]:
    if isinstance(said, list):
        said = {"entries": said}  # torch before 2.3 wrote the list alone
    if not isinstance(said, dict) or not isinstance(said.get("entries", []), list):
        raise Unparsable(f"{section.source}: plain data, but no flight recorder's")
    if not ("entries" in said or "pg_status" in said or "pg_config" in said):
        raise Unparsable(f"{section.source}: plain data, but no flight recorder's")
    entries = said.get("entries", [])
    rank = rank_of(named)
    if rank is None:
        yield Loss(
            f"whose flight recorder {section.source} is",
            "the dump does not say its rank, and neither does the file's name (torch calls it PREFIX and the rank)",
        )
    telling = _telling(entries[:MAX_CALLS])
    read = [_call(section, place, entries[place]) for place in telling]
    calls = _closed([c for c in read if c is not None])
    unread = len(read) - len(calls) + len(entries[MAX_CALLS:])
    if unread:
        yield Loss(f"{unread} entries of {section.source}", "without a group or a sequence number, or beyond the number that is read")
    name = _base(section.source)
    shown = f"rank {rank}, from the file's name: the dump itself does not say" if rank is not None else name
    yield FlightRecorder(
        (
            Dump(
                source=section.source,
                rank=rank,
                version=_text(said.get("version")),
                nccl_version=_text(said.get("comm_lib_version")) or _text(said.get("nccl_version")),
                groups=_groups(said),
                calls=_kept(calls),
                origin={"*": section.spot("its name", shown)},
            ),
        )
    )


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def rank_of(name: str) -> int | None:
    """`nccl_trace_rank_3`, `flight-recorder-rank0.pkl`, `trace_12`: the last number that stands for a rank."""
    found = [m for m in _RANK.finditer(_base(name))]
    named = [m for m in found if m[1] is not None] or found
    rank = int(named[-1][1] or named[-1][2]) if named else None
    return rank if rank is not None and rank < MAX_RANK else None


def _value(section: Section) -> Any:
    data = section.content
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            at = getattr(error, "pos", None)
            where = f" at character {at}" if at is not None else ""
            raise Unparsable(f"{section.source}: its JSON is cut or damaged{where}") from error
    try:
        return plain_pickle.load(data)
    except plain_pickle.Refused as reason:
        raise Unparsable(f"{section.source}: this pickle was refused and nothing in it was run: {reason}") from reason


def _call(section: Section, place: int, said: Any) -> Call | None:
    if not isinstance(said, dict):
        return None
    # torch 2.2 has `seq_id`; point-to-point calls count apart and are matched by no other rank's number.
    seq = _whole(said.get("collective_seq_id", said.get("seq_id")))
    group = _group_of(said)
    if seq is None or group is None:
        return None
    state = _state(said)
    op = _text(said.get("profiling_name"))
    number = _whole(said.get("record_id"))
    return Call(
        group=group,
        seq=0 if said.get("is_p2p") is True else seq,
        batch=_whole(said.get("p2p_seq_id")) if said.get("is_p2p") is True else None,
        op=op.partition(":")[2] or op if op else None,
        sizes_in=_sizes(said.get("input_sizes")),
        sizes_out=_sizes(said.get("output_sizes")),
        dtypes=_words(said.get("input_dtypes")),
        state=state,
        timeout_ms=_whole(said.get("timeout_ms")),
        created_ns=_whole(said.get("time_created_ns")),
        frames=_frames(said.get("frames")),
        origin={"*": section.spot(f"entry {place if number is None else number}", _shown(said, seq))},
    )


def _state(said: dict[str, Any]) -> str | None:
    """Of Gloo's calls torch measures neither start nor end: they stay scheduled, and are retired when they are done."""
    if said.get("retired") is True and (_text(said.get("profiling_name")) or "").startswith("gloo:"):
        return "completed"
    state = _text(said.get("state"))
    return state if state in _STATES else None


def _telling(entries: list[Any]) -> list[int]:
    """Places of the entries that are read: of calls that are done the last of each group, and all others. A dump holds thousands."""
    done: dict[str | None, int] = {}
    out = []
    for place in range(len(entries) - 1, -1, -1):
        said = entries[place]
        # The end of a batch tells of those above it that they are done.
        if isinstance(said, dict) and _state(said) == "completed" and not str(said.get("profiling_name")).endswith(":coalesced"):
            group = _group_of(said)
            done[group] = done.get(group, 0) + 1
            if group is not None and done[group] > KEPT:
                continue
        out.append(place)
    return out[::-1]


def _closed(calls: list[Call]) -> list[Call]:
    """Of calls that were batched only the last entry, `coalesced`, has a state that torch keeps up: it is that of all."""
    ends: dict[tuple[str, int, int | None], str | None] = {}
    out = []
    for call in reversed(calls):
        key = (call.group, call.seq, call.batch)
        if call.op == "coalesced":
            ends[key] = call.state
        elif key in ends:
            call = replace(call, state=ends[key])
        out.append(call)
    return out[::-1]


def _shown(said: dict[str, Any], seq: int) -> str:
    words = [_text(said.get("profiling_name")) or "a call", f"collective_seq_id {seq}", _state(said) or _text(said.get("state"))]
    frame = next((f for f in _frames(said.get("frames")) if not _library(f)), None)
    return ", ".join([*(w for w in words if w), *([f"called by {frame}"] if frame else [])])


def _library(frame: Frame) -> bool:
    return "/torch/" in frame.file or frame.file.startswith("<")


def _group_of(said: dict[str, Any]) -> str | None:
    """The group's id: it is the same on every rank, where `pg_id` counts a rank's own groups."""
    named = said.get("process_group")
    if isinstance(named, (list, tuple)) and named:
        return _text(named[0])
    return _text(said.get("pg_name")) or _text(said.get("pg_id"))


def _groups(said: dict[str, Any]) -> dict[str, GroupStatus]:
    status = said.get("pg_status")
    config = said.get("pg_config")
    status = status if isinstance(status, dict) else {}
    config = config if isinstance(config, dict) else {}
    names = _names(said)
    only = next(iter(status)) if len(status) == 1 else None
    if only is not None and config.keys() == {""}:
        config = {only: config[""]}  # as torch writes the one group of Gloo's
    out = {}
    for key in list(dict.fromkeys((*config, *status)))[:4096]:
        about, counts = config.get(key), status.get(key)
        about = about if isinstance(about, dict) else {}
        counts = counts if isinstance(counts, dict) else {}
        if key == "" and not counts:
            continue  # several groups of Gloo's under one empty name
        name = _text(about.get("name")) or str(key)[:120]
        out[name] = GroupStatus(
            _text(about.get("desc")) or names.get(name),
            _ranks(about.get("ranks")),
            *(_count(counts.get(f"last_{word}_collective")) for word in ("enqueued", "started", "completed")),
        )
    return out


def _names(said: dict[str, Any]) -> dict[str, str]:
    """What the calls say of their groups: `["0", "default_pg"]`."""
    out: dict[str, str] = {}
    entries = said.get("entries")
    for entry in entries[-MAX_CALLS:] if isinstance(entries, list) else ():
        named = entry.get("process_group") if isinstance(entry, dict) else None
        if isinstance(named, (list, tuple)) and len(named) > 1:
            group, desc = _text(named[0]), _text(named[1])
            if group is not None and desc is not None:
                out.setdefault(group, desc)
    return out


def _ranks(said: Any) -> tuple[int, ...] | None:
    if isinstance(said, str) and len(said) < 1 << 16 and re.match(r"^\[[\d, ]*\]$", said):
        found: list[Any] = re.findall(r"\d{1,7}", said)
    elif isinstance(said, (list, tuple)):
        found = list(said[: 1 << 16])
    else:
        return None
    numbers = [int(n) for n in found if isinstance(n, str) or _whole(n) is not None]
    return tuple(numbers) or None


def _kept(calls: list[Call]) -> tuple[Call, ...]:
    last: dict[str, int] = {}
    kept = []
    for call in reversed(calls):
        if call.state != "completed" or last.get(call.group, 0) < KEPT:
            last[call.group] = last.get(call.group, 0) + 1
            kept.append(call)
    return tuple(reversed(kept))


def _frames(said: Any) -> tuple[Frame, ...]:
    out = []
    for frame in said[:MAX_FRAMES] if isinstance(said, (list, tuple)) else ():
        if isinstance(frame, dict):
            name, file = _text(frame.get("name")), _text(frame.get("filename"))
            if name and file:
                out.append(Frame(name, file, _whole(frame.get("line"))))
    return tuple(out)


def _sizes(said: Any) -> str | None:
    """`[[4194304]]` as text: compared, never computed with."""
    if not isinstance(said, (list, tuple)) or len(said) > 4096:
        return None
    parts = []
    for shape in said:
        numbers = shape if isinstance(shape, (list, tuple)) else [shape]
        if len(numbers) > 64 or not all(_whole(n) is not None for n in numbers):
            return None
        parts.append("x".join(str(n) for n in numbers))
    text = " ".join(parts)
    return text if len(text) < 200 else f"{len(parts)} tensors (checksum {crc32(text.encode()):08x})"


def _words(said: Any) -> str | None:
    if not isinstance(said, (list, tuple)) or len(said) > 4096:
        return None
    return " ".join(dict.fromkeys(_text(w) or "?" for w in said))[:120] or None


def _whole(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 63 else None


def _count(said: Any) -> int | None:
    """A count of finished or begun calls, in torch's own JSON a string; -1 is its word for none (or for not measured)."""
    if isinstance(said, str):
        return int(said) if said.isdecimal() and said.isascii() and len(said) < 19 else None
    return None if said == -1 else _whole(said)


def _text(said: Any) -> str | None:
    if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 63:
        return str(said)
    return clean(said[:300]).strip() or None if isinstance(said, str) else None
