"""A job that waits for ever: what the framework's watchdog, its flight recorder and NCCL's RAS service say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from gpudoctor.facts.base import Contradiction, Entry, Fact, merge_entry
from gpudoctor.record import EMPTY, Record, replace


class Frame(NamedTuple):
    """One line of a Python stack, innermost first."""

    name: str
    file: str
    line: int | None

    def __str__(self) -> str:
        return f"{self.name} at {self.file}" + (f":{self.line}" if self.line is not None else "")


class RankWork(Entry):
    """What one rank's watchdog said of one process group.

    rank: of the whole job. group_rank: within the group, all that torch before 2.2 prints.
    seq, op, …: the collective that timed out here; None where this rank only heard of it.
    last_enqueued, last_completed: counts of this group, 0 for none.
    """

    source: str
    rank: int | None = None
    group_rank: int | None = None
    group: str | None = None  # its id; "0" is the default group, None where the line does not say
    group_name: str | None = None
    run: int = 0  # a job that was restarted prints everything again
    last_enqueued: int | None = None
    last_completed: int | None = None
    seq: int | None = None
    op: str | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    shape: str | None = None  # torch before 2.1 prints this in place of the counts
    timeout_ms: int | None = None
    ran_ms: int | None = None
    timed_out: bool | None = None
    signalled: bool | None = None  # it says that a collective of its own timed out, and not which
    told_by: int | None = None  # the rank whose time-out this one heard of
    stuck: bool | None = None  # its watchdog itself made no progress
    stuck_seconds: int | None = None
    error: str | None = None  # an asynchronous error of NCCL or CUDA
    last_error: str | None = None  # NCCL's own last warning, as torch quotes it
    frames: tuple[Frame, ...] | None = None


class Accused(Entry):
    """Ranks that the framework itself names: desync report, monitoredBarrier, a store barrier that was not full, a comparison.

    kind: "behind", "unfinished", "never", "barrier", "absent" did not come; "odd" call something else, "calls" is one rank's
    call where two were compared; "waits" and "left" are ranks that wait, for all or for rank 0 that is gone; "id" and "id lost"
    wait for rank `of`, with which NCCL's start begins, or lost the store meanwhile. "stalled" did not submit what Horovod's other
    ranks did; "rendezvous" waits where XLA's threads meet, "ended" ended there. "store" lost the store, "unread" complains of what
    is not known here: both only where nothing else is told.
    """

    kind: str
    ranks: tuple[int, ...]
    seq: int | None = None
    world: int | None = None  # of the ranks that should come
    joined: int | None = None
    op: str | None = None
    sizes: str | None = None
    group: str | None = None
    of: int | None = None


ABORT, KILL, TERMINATE = 6, 9, 15
SIGNALS = {4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}  # that end a process from outside


class Death(Entry):
    """A process that the launcher saw end."""

    rank: int | None  # None: only the process is named. Of srun: the task
    exitcode: int  # negative: by that signal
    host: str | None = None
    pid: int | None = None
    local: int | None = None  # its rank on its node, where that is all that is told
    first: bool = False  # torchrun's "first observed failure", and what made srun end a step
    after: bool = False  # srun was ending the step by then

    def called(self, rank: int | None = None) -> str:
        """Which process it was; rank: where another source tells it."""
        number = self.rank if rank is None else rank
        if number is not None:
            return f"rank {number}"
        return f"local rank {self.local}" if self.local is not None else f"process {self.pid}" if self.pid is not None else "a process"

    def ended(self, several: bool = False) -> str:
        """How it ended; several: it speaks for others that ended alike."""
        signal = SIGNALS.get(-self.exitcode)
        if self.exitcode == -ABORT:
            return f"ended {'themselves' if several else 'itself'} by SIGABRT, as an assertion, an uncaught C++ exception or PyTorch's watchdog does"
        if signal:
            return f"{'were' if several else 'was'} killed by {signal}"
        return f"ended by signal {-self.exitcode}" if self.exitcode < 0 else f"ended with exit status {self.exitcode}"


class Watchdog(Fact):
    """PyTorch's ProcessGroupNCCL, over all ranks and files."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "PyTorch's watchdog"

    works: tuple[RankWork, ...] = ()
    accused: tuple[Accused, ...] = ()
    deaths: tuple[Death, ...] = ()

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Watchdog:
        return cls(
            joined_works(w for part in parts for w in part.works),
            tuple(a for part in parts for a in part.accused),
            tuple(d for part in parts for d in part.deaths),
        )


def joined_works(works: Iterable[RankWork]) -> tuple[RankWork, ...]:
    """Lines of one rank and group become one entry, unless they tell of different time-outs: then the job ran again."""
    slots: dict[tuple[Any, ...], list[RankWork]] = {}
    for work in works:
        runs = slots.setdefault((work.group, work.rank, None if work.rank is not None else work.group_rank), [])
        for place, kept in enumerate(runs):
            if _same_run(kept, work):
                runs[place] = merge_entry(kept, work, "", _ignore)
                break
        else:
            runs.append(work)
    return tuple(replace(w, run=n) for runs in slots.values() for n, w in enumerate(runs))


def _same_run(a: RankWork, b: RankWork) -> bool:
    if a.rank is None and a.group_rank is None:
        return a.seq == b.seq and a.op == b.op
    return all(x is None or y is None or x == y for x, y in ((a.seq, b.seq), (a.op, b.op), (a.numel_in, b.numel_in)))


def _ignore(_: Contradiction) -> None:
    """Counters move between two lines of a rank: the first reading stays."""


class Call(Entry):
    """One entry of a flight recorder: a collective as one rank called it."""

    group: str
    seq: int  # 0 of a send or receive: those have numbers of their own
    batch: int | None = None  # that number; sends and receives of one batch share it
    op: str | None = None  # "all_reduce", "send 0->1"
    sizes_in: str | None = None  # "[[4194304]]"
    sizes_out: str | None = None
    dtypes: str | None = None
    state: str | None = None  # scheduled, started, completed
    timeout_ms: int | None = None
    created_ns: int | None = None  # by the clock of its host
    frames: tuple[Frame, ...] = ()


class GroupStatus(Record):
    """How far one process group came, by the numbers of its collectives."""

    name: str | None
    ranks: tuple[int, ...] | None  # of the whole job
    last_enqueued: int | None
    last_started: int | None
    last_completed: int | None


class Dump(Entry):
    """One rank's flight recorder. The dump does not say whose it is: `rank` is taken from the file's name."""

    source: str
    rank: int | None = None
    version: str | None = None
    nccl_version: str | None = None
    groups: Mapping[str, GroupStatus] = EMPTY
    calls: tuple[Call, ...] = ()  # unfinished ones, and the last of every group
    whole: bool = True


class FlightRecorder(Fact):
    """PyTorch's record of collectives, one dump a rank."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "PyTorch's flight recorder"

    dumps: tuple[Dump, ...] = ()

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> FlightRecorder:
        return cls(tuple(d for part in parts for d in part.dumps))


class Stack(Entry):
    """Where one process's Python code stood (py-spy dump), innermost frame first."""

    source: str
    pid: int | None = None
    command: str | None = None
    frames: tuple[Frame, ...] = ()  # of its main thread


class Stacks(Fact):
    """Of processes of a job, by the numbers that the host has for them."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "stacks of processes"

    stacks: tuple[Stack, ...] = ()

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Stacks:
        return cls(tuple(s for part in parts for s in part.stacks))


class LogEnd(Entry):
    """The last lines of one log, each with its number, whoever wrote them."""

    source: str
    lines: tuple[tuple[int, str], ...]

    def last_of(self, marks: tuple[str, ...], alone: bool) -> tuple[tuple[int, str], ...]:
        """The lines that hold one of these marks, the latest first; alone: all of them are one rank's."""
        return tuple(told for told in reversed(self.lines) if told[1].strip() and (alone or any(m in told[1] for m in marks)))


class LogEnds(Fact):
    """Of each log of a job."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "the ends of the job's logs"

    ends: tuple[LogEnd, ...] = ()

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> LogEnds:
        return cls(tuple(e for part in parts for e in part.ends))

    def of(self, source: str) -> LogEnd | None:
        return next((e for e in self.ends if e.source == source), None)


class RasRank(Record):
    """One rank that RAS's answer singles out."""

    rank: int
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    why: str | None = None  # what the answer says of it: "dead", "unresponsive", "no data", "status INIT", an error


class RasCounts(Record):
    """How far ranks have come in one kind of operation. `named`: those listed, out of `ranks`."""

    operation: str
    upto: int
    ranks: int
    named: tuple[RasRank, ...]


class RasComm(Entry):
    """One communicator in RAS's answer; in a text answer only those with something to say."""

    id: str | None = None  # its hash
    size: int | None = None
    status: str | None = None
    errors: str | None = None
    counts: tuple[RasCounts, ...] = ()
    missing: tuple[RasRank, ...] = ()
    failed: tuple[RasRank, ...] = ()


class RasPeer(Entry):
    """A process of the job that RAS lost (rank unknown: it has none of its own)."""

    state: str  # "dead", "incomplete"
    pid: int | None = None
    host: str | None = None
    gpus: str | None = None


class RasAnswer(Entry):
    """One answer of the RAS service, text or JSON."""

    source: str
    nccl_version: str | None = None
    processes: int | None = None
    timeouts: int | None = None
    comms: tuple[RasComm, ...] = ()
    groups: tuple[RasComm, ...] = ()  # rows of the summary: status and errors by size
    peers: tuple[RasPeer, ...] = ()
    lost: int | None = None  # processes without data
    dead: int | None = None


class Ras(Fact):
    """What NCCL's RAS service said, in the order of asking."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "NCCL's RAS service"
    hint: ClassVar[str | None] = "echo verbose status | nc -w 5 localhost 28028"

    answers: tuple[RasAnswer, ...] = ()

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Ras:
        return cls(tuple(a for part in parts for a in part.answers))
