"""What single NCCL lines say, gathered by process and communicator. Versions 2.3 to 2.32.

A line is accepted as it stands or not at all: every value must be followed by what NCCL prints after it, so a line
that was cut or broken by a terminal gives less, never something wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from gpudoctor.facts.base import Loss
from gpudoctor.facts.nccl import Diagnostic, Nccl
from gpudoctor.facts.system import Software
from gpudoctor.parsers import nccl_figures, nccl_process
from gpudoctor.parsers.nccl_complaints import INFO_TELLS, RESULT_TELLS, Complaints, Where, deep
from gpudoctor.parsers.nccl_figures import counts, figures
from gpudoctor.parsers.nccl_pair import Connections, describe, named
from gpudoctor.parsers.nccl_place import Place, evidence
from gpudoctor.parsers.nccl_process import Seen, gdr, of_torch, version_in
from gpudoctor.parsers.nccl_state import Comm, Pairs, Proc
from gpudoctor.read.nccl_cut import NAMING, NUMBERED
from gpudoctor.read.nccl_line import MARK
from gpudoctor.read.nccl_silent import WARNS, W

MAX_PROCS = 20_000

_WHO = re.compile(rb"(?:^|[\s>:\]|)*`\"',])([A-Za-z0-9_][\w.-]*):(\d+)(?::(\d+))?(?: \[(-?\d+)\])? *$")
_CUT_HOST = re.compile(rb"(?:^|[^:]):$")  # what is left of a host's name that was cut or masked at its beginning
_ONLY_DEV = re.compile(rb"(?:^|\s)\[(-?\d+)\] *$")
# The part of a WARN or ATTN prefix behind the device: `transport/net.cc:12 (netInit) `, a plug-in's `ofi_process_cq:12 `,
# and the marks of a paste that makes NCCL's words bold.
_SOURCE = re.compile(rb"(?: ?([\w./+-]{1,160}\.(?:cc|h|cu|c|cpp))|(?<=\]) ([A-Za-z_]\w{0,160})):\d{1,9}(?: \([^)]{0,160}\))? *[*_`]{0,3}$")
_LINKED = re.compile(rb"\[([\w./+-]+:\d+)\]\(https?://[^()\s]*\)")
_FUNCTION = re.compile(rb"(?:^|\s)()([A-Za-z]\w{0,80}_\w{0,80}):\d{1,9} *$")  # a plug-in's, where the process was left out
# What NCCL gave back to its caller. Deeper in the stack a result may be one that it goes on without.
# From 2.30 on the function stands between place and result; other builds than NCCL's own print more of the path.
_PATH, _GAVE = rb"/?(?:[\w.+-]{1,80}/){0,20}", rb"\.cc:\d+ (?:\(\w{1,80}\) )?-> [1-6]"
_RESULT = re.compile(
    _PATH + rb"(?:(?:group|enqueue)" + _GAVE + rb"(?: \[Async thread\])?|init" + _GAVE + rb" \[Async thread\]|proxy" + _GAVE + rb" \[\w+ [Tt]hread\])[ \r]*\n"
)
# A writer's prefix at the end of what stands before its message; the same where it runs into another's.
_WRITER = re.compile(rb"[A-Za-z_][\w.-]{0,128}:\d{1,9}(?::\d{1,9})? \[-?\d{1,9}\] *$")
_NEXT = re.compile(rb"[A-Za-z_][\w.-]{0,128}:\d{1,9}(?::\d{1,9})? \[-?\d{1,9}\][^\n]*$")
# The same of a call that makes a communicator and waits for it: the caller got it, unless one was made after all.
_START_RESULT = re.compile(_PATH + rb"(init" + _GAVE + rb")[ \r]*\n")
_SOURCES = b"src/"  # where a path begins with something else
_RING = re.compile(rb"Channel 00/(\d+) : +\d+[ \d.]*\r?\n")
# Where the next line began in a paste that lost its line ends. One blank of several: a run of them would be tried from each.
_JOINT = re.compile(rb"(?: |\\n)(?=[A-Za-z0-9][\w.-]*:\d+:\d+ \[-?\d+\] (?:[\w/+.-]+:\d+ )?NCCL (?:INFO|WARN) |NCCL version \d)")
_LONG, _JOINED = 200, 4  # bytes of such a paste; lines in it
_START, _COMPLETE = b"START\n", b"COMPLETE\n"
_OLD_RANK = re.compile(rb"rank (\d+) nranks (\d+)\s")
_SPEAKS_OF_PROCESS = nccl_process.READERS
_HAS_FIGURES = nccl_figures.READERS
_CHANNELS = frozenset((b"Chann", b"Ring "))
# `NCCL version: 2.21.5` and `**NCCL 2.27.5**, driver 570` of who lists what runs: the words begin their line and end with the number.
_STATED = re.compile(rb"(?:[Vv]ersion)?[*_`]{0,3} ?[:=|]?[*_` ]{0,4}v?(2\.\d{1,2}\.\d{1,2})(?:[-+][\w.+-]{1,30})?[*_`]{0,3} *(?:[,;|(]|\r?\n)")
_BULLET = b" \t>#*-+|_`\xe2\x80\xa2"
_DIAG = re.compile(rb"\[([A-Z]+)\] +(\S[^\n]*)\n")
_OF_COMM = re.compile(rb" in comm 0x[0-9a-f]+(?:/0x[0-9a-f]+)*")
_MAX_DIAGNOSTICS = 2000
_MAX_HEARD = 64  # lines that a process remembers having read


class NcclLog:
    """One source, read line by line; `facts` says what it came to."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.procs: dict[tuple[str | None, int | None, int | None], Proc] = {}
        self.complaints = Complaints(source)
        self.seen = Seen()
        self.diagnostics: dict[str, tuple[str, Place]] = {}
        self.pairs = Pairs()
        self.loose_version: str | None = None
        self.stated: dict[str, Place] = {}  # what a reader's own list says of it
        self.order = 0
        self._hosts: dict[int, set[str]] = {}
        self._connections = Connections()
        self._who: dict[bytes, tuple[Proc, int | None]] = {}

    def info(self, before: bytes, message: bytes, where: Where) -> None:
        """A line of level INFO, cut behind its level."""
        if len(message) > _LONG and self._pasted(before, b"INFO " + message, where):
            return
        if W in message and WARNS in message:  # another writer ran into this line
            self._run_together(before, b"INFO " + message, where)
            return
        try:
            key = message[:5]
            proc, dev = self._who.get(before) or self._identify(before)
            if key in NAMING:
                (self._old_rank if key == b"rank " else self._comm)(proc, message, where)
            elif key in _CHANNELS:
                # What one channel says of a pair another says too.
                self._channel(proc, message, message[NUMBERED:], where)
            elif key in _SPEAKS_OF_PROCESS:
                mark = hash(message)
                if mark not in proc.heard:
                    _SPEAKS_OF_PROCESS[key](proc, message, self.seen, where)
                    _remember(proc.heard, mark)
            elif key in _HAS_FIGURES:
                _HAS_FIGURES[key](proc, message, self.seen, where)
            else:
                self._info(proc, dev, key, message, where)
        except (ValueError, OverflowError):  # a number of five thousand digits, `1.2.3`: no line of NCCL's
            return

    def other(self, before: bytes, message: bytes, where: Where) -> None:
        """A line of any other level, or a framework's that speaks of NCCL, cut at its first `NCCL `."""
        if len(message) > _LONG and self._pasted(before, message, where):
            return
        try:
            if WARNS in message:
                self._run_together(before, message, where)
            elif message.startswith((b"WARN ", b"ATTN ", b"ABORT ")):
                self._warn(before, message, where)
            elif message.startswith(b"DIAG "):
                self._diag(message[5:], where)
            elif not message.startswith((b"CALL ", b"TRACE ")):
                # A framework's sentence: `NCCL error in: …, unhandled cuda error, NCCL version 2.29.3`.
                at = 0 if message.startswith(b"version ") else message.find(b"NCCL version ") + 5
                version = of_torch(version_in(message, at)) if at != 4 else None
                self.loose_version = version or self.loose_version
                stated = _STATED.match(message) if version is None and not before.strip(_BULLET) else None
                if stated is not None and len(self.stated) < 2:
                    self.stated.setdefault(stated[1].decode(), where())
        except (ValueError, OverflowError):
            return

    def _pasted(self, before: bytes, message: bytes, where: Where) -> bool:
        """Whole lines in one, a blank between each two: what a page or a mailer makes of a paste. False: it is no such paste.

        Writers that run together break each other anywhere, and not so often in one line.
        """
        escaped = b"\\n" in message  # the string of a JSON text: there they are told apart for certain
        if not escaped and message.count(MARK) < _JOINED:
            return False
        lines = _JOINT.split(before + MARK + message.rstrip(b"\r\n"))
        if len(lines) <= (1 if escaped else _JOINED) or any(MARK in line[line.find(MARK) + 1 :] for line in lines):
            return False
        for line in lines:
            head, _, said = (line.partition(b"\\n")[0].removesuffix(b"\\r") if escaped else line.rstrip(b" ")).partition(MARK)
            (self.info if said.startswith(b"INFO ") else self.other)(head, said.removeprefix(b"INFO ") + b"\n", where)
        return True

    def _run_together(self, before: bytes, message: bytes, where: Where) -> None:
        """Several writers in one line: what NCCL warns of in it, and nothing of the rest, which may be broken anywhere."""
        parts = [before, *message.split(MARK)]
        who = _SOURCE.sub(b"", before)
        for head, said in zip(parts, parts[1:], strict=False):
            writer = _WRITER.search(_SOURCE.sub(b"", head))
            if writer is not None:
                who = b" " + writer[0]
            if said.startswith(b"WARN "):
                last = said is parts[-1]
                text = said[5:] if last else _NEXT.sub(b"", said[5:]).rstrip() + b"\n"
                if text.strip() and (last or _SOURCE.fullmatch(b" " + text.strip()) is None):
                    # Behind a writer's name another's file may stand: the nearest one is that of the words that follow.
                    file = _SOURCE.search(head)
                    self._warn(who + (b" " + file[0].lstrip() if file is not None else b""), b"WARN " + text, where)

    def _info(self, proc: Proc, dev: int | None, key: bytes, message: bytes, where: Where) -> None:
        """A line of level INFO that no handler has for its own."""
        if message.find(b" coll channels", 0, 20) > 0:
            counts(proc, message)
            return
        if key[:1] in b" +=0123456789G":
            figures(proc, message, self.seen, where)
        if key in INFO_TELLS or b"GPU Direct" in message:
            gdr(proc, message, self.seen, where)
            self.complaints.hear("INFO", proc, dev, None, message, where)
        elif b"Cuda failure" in message or b"not visible, assuming" in message:
            self.complaints.hear("INFO", proc, dev, None, message, where)
        elif key in RESULT_TELLS or _SOURCES in message:
            start = _START_RESULT.match(message)
            if start is not None:
                proc.fail(start[1].decode(), where())
            elif _RESULT.match(message):
                self.complaints.hear("INFO", proc, dev, None, message, where)
            else:
                deep(proc, message, where)

    def _identify(self, before: bytes) -> tuple[Proc, int | None]:
        found = _WHO.search(before)
        dev: int | None = None
        if found is not None:
            host, pid = found[1].decode("ascii", "replace"), int(found[2])
            if not found[3] and host.isdigit() and _CUT_HOST.search(before, 0, found.start(1)):  # `-worker-1:946:988 [0]`
                host, pid = "", int(host)
            dev = int(found[4]) if found[4] else None
            key: tuple[str | None, int | None, int | None] = (host or None, pid, None)
            if key not in self.procs:
                # Two writers may run into one line: `…Partitiovm:705:705 [0] NCCL`. The known name behind it is meant.
                if host and found.start(1) > 0:
                    host = next((h for h in self._hosts.get(pid, ()) if host.endswith(h)), host)
                key = (host or None, pid, None)
                self._hosts.setdefault(pid, set()).add(host)
        else:
            alone = _ONLY_DEV.search(before)
            dev = int(alone[1]) if alone else None
            key = (None, None, dev)
        proc = self.procs.get(key)
        if proc is None:
            if len(self.procs) >= MAX_PROCS:
                key = (None, None, None)
            proc = self.procs.setdefault(key, Proc(key[0], key[1]))
        if len(self._who) > 100_000:
            self._who.clear()
        self._who[before] = (proc, dev)
        if dev is not None and dev >= 0:
            proc.drives.add(dev)
        return proc, dev

    # --- connections

    def _channel(self, proc: Proc, message: bytes, told: bytes, where: Where) -> None:
        found = self._connections.known.get(told) or self._connections.read(message, told)
        if found is None:
            ring = _RING.match(message)  # nothing of what another writer put behind a beginning
            if ring is not None:
                proc.ring_channels = int(ring[1])
        elif proc.connect(found, self.pairs) and found.kind not in self.seen.spots:
            self.seen.note(found.kind, where)

    # --- communicators

    def _comm(self, proc: Proc, message: bytes, where: Where) -> None:
        comm = proc.current
        if message.endswith(_COMPLETE) and comm is not None and comm.said == hash(message[: -len(_COMPLETE)]) and comm.ended is None:
            comm.completed = True
            proc.complete(comm)
            return
        line = named(message)
        if line is None:
            return
        pointer, rank, nranks, what, details = line
        comm = proc.comms.get(pointer)
        starts = what == b"Init START"
        if comm is None or (starts and (comm.started or comm.ended)) or (comm.ended and not what.startswith((b"Destroy", b"Abort"))) or comm.rank != rank:
            self.order += 1
            comm = Comm(pointer, rank, nranks, self.order)
            proc.begin(pointer, comm)
            comm.where = where()
        if starts or not what or comm.comm_id is None:  # the end repeats what the start said
            describe(comm, details)
        if starts:
            comm.started = True
            comm.said = hash(message[: -len(_START)])
        elif what == b"Init COMPLETE":
            comm.completed = True
            proc.complete(comm)
        elif what.endswith(b"COMPLETE") and what:
            comm.ended = "destroy" if what.startswith(b"Destroy") else "abort"

    def _old_rank(self, proc: Proc, message: bytes, where: Where) -> None:
        found = _OLD_RANK.match(message)
        if found is not None:
            self.order += 1
            comm = Comm("", int(found[1]), int(found[2]), self.order)
            comm.where = where()
            proc.begin(str(self.order), comm)

    # --- complaints

    def _warn(self, before: bytes, message: bytes, where: Where) -> None:
        file = None
        if b"](http" in before:  # a mailer made a link of `net_ib.cc:101`
            before = _LINKED.sub(rb"\1", before)
        found = _SOURCE.search(before) or _FUNCTION.search(before)
        if found is not None:
            file = (found[1] or found[2]).decode("ascii", "replace")
            before = before[: found.start()]
        proc, dev = self._identify(before + b" ") if before not in self._who else self._who[before]
        self.complaints.hear(message[:4].decode().strip(), proc, dev, file, message[5:], where)

    def _diag(self, message: bytes, where: Where) -> None:
        """A whole line. Every communicator is looked at anew: what is said of one and again of another is kept once."""
        found = _DIAG.match(message)
        if found is not None:
            status, text = found[1].decode(), _OF_COMM.sub(b"", found[2].rstrip()).decode("utf-8", "replace")
            if text not in self.diagnostics and len(self.diagnostics) < _MAX_DIAGNOSTICS:
                self.diagnostics[text] = (status, where())

    # --- result

    def facts(self) -> Iterator[Nccl | Software | Loss]:
        """Nothing where no line of NCCL's was seen; a version that only a list names is installed, and no run's."""
        if self._connections.of_rccl or self.complaints.of_rccl:
            yield Loss("NCCL's log", f"{self.source} is the log of RCCL, AMD's library: what it shares with NCCL (ranks, network, /dev/shm) is judged, its GPUs are not")
        if len(self.stated) == 1:
            ((stated, place),) = self.stated.items()
            yield Software({"nccl": stated}, evidence(self.source, place))
            self.loose_version = self.loose_version or (stated if self.procs or self.complaints else None)
        if not (self.procs or self.complaints or self.diagnostics or self.loose_version):
            return
        procs = list(self.procs.values())
        if not procs and (self.loose_version or self.diagnostics):
            procs = [Proc(None, None)]
        for proc in procs:
            if proc.version is None:
                proc.version = self.loose_version
        if self.pairs.full:
            # Told by one end before the limit and by the other after it: every pair counts once.
            for proc in procs:
                for comm in proc.all:
                    for (a, b), names in comm.transports.items():
                        for name in names:
                            self.pairs.count(comm.nranks, a, b, name)
        spot_of = partial(evidence, self.source)
        yield Nccl(
            procs=tuple(p.record(self.source) for p in procs),
            messages=self.complaints.messages(),
            diagnostics=tuple(
                Diagnostic(status=status, text=text, origin={"*": spot_of(spot)})
                for text, (status, spot) in self.diagnostics.items()
            ),
            settings={key: spot_of(spot) for key, spot in self.seen.settings.items()},
            seen={kind: spot_of(spot) for kind, spot in self.seen.spots.items()},
            counts=self.pairs.counts(),
        )


def _remember(marks: set[int], mark: int) -> None:
    """As hashes, of which 64 bits never coincide within one process, and few: there may be 20,000 processes."""
    if len(marks) >= _MAX_HEARD:
        marks.clear()
    marks.add(mark)
