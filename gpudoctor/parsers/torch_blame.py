"""What the framework itself says of other ranks: desync report, barriers, the store, and torchrun's table of the dead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.facts.hang import Accused, Death
from gpudoctor.read.section import Line, Section
from gpudoctor.record import replace

MAX_RANK = 1 << 20
_BARRIER = re.compile(r"Ranks? (\d[\d, ]{0,20000}) failed to pass monitoredBarrier in \d+ ms")
_BARRIER_WAIT = re.compile(r"Rank (\d{1,7}) timed out in monitoredBarrier after \d+ ms")
_BARRIER_LEFT = re.compile(r"Rank (\d{1,7}) successfully reached monitoredBarrier, but received errors")
_STORE = re.compile(
    r"store[ -]based barrier on rank:? (\d{1,7}), for key: \S{1,120} \(world_size=(\d{1,7}), (?:worker_count|num_workers_joined)=(\d{1,7})\b"
)
# The store is served by rank 0, so it is rank 0 that waits for the others before any group exists.
_CLIENTS = re.compile(r"[Tt]imed out after \d{1,9} seconds waiting for clients\. (\d{1,7})/(\d{1,7}) clients joined")
_BEHIND = re.compile(r"\[(\d[\d, ]{0,20000})\] finished collective #(\d{1,18}), but didn't join collective #(\d{1,18}) ")
_UNFINISHED = re.compile(r"\[(\d[\d, ]{0,20000})\] joined but didn't finish collective #(\d{1,18}) ")
_NEVER = re.compile(r"ranks? \[(\d[\d, ]{0,20000})\] are the lagging ranks")
# Every rank of a group asks the store for the id that the group's first one makes in its first NCCL call.
_UNIQUE_ID = re.compile(r"\[(\d{1,7})\] is setting up NCCL communicator and ret\w{1,8} ncclUniqueId from \[(\d{1,7})\].{0,120}? got error: (\S.{0,60})")
_WAITED = re.compile(r"[Tt]ime ?out|[Tt]imed out|wait timeout")
_LOST_STORE = re.compile(r'Failed to check the "should dump" flag on TCPStore|TCPStore.{0,80}(?:sendBytes|recvValue|recvBytes|sendValue) failed on|TCPStore server has shut down')
_COMPLAINS = re.compile(r"\[[EF][ \d][^\]]{0,60}ProcessGroup\w{1,20}\.cpp:\d+\] ")
_OF_RANK = re.compile(r"\[rank ?(\d{1,7})[\]\[]|\bRank (\d{1,7})\]")
_NAMING = (
    (_BEHIND, "behind"), (_UNFINISHED, "unfinished"), (_NEVER, "never"), (_BARRIER, "barrier"), (_BARRIER_WAIT, "waits"), (_BARRIER_LEFT, "left"),
)  # fmt: skip
_DEATH_RANK = re.compile(r"^\s*(?:\[rank ?\d+\]:\s?)?rank\s{1,8}: (\d{1,7}) \(local_rank: \d+\)\s*$")
_DEATH_CODE = re.compile(r"exitcode\s{1,8}: (-?\d{1,4}) \(pid: (\d{1,9})\)")
# What names a process and no rank: torchrun's agent, the last line of its table, Open MPI's handler in the process itself,
# DeepSpeed's launcher of one node (it prints the command, and goes on to kill the others).
_BY_PID = (
    re.compile(r"failed \(exitcode: -(?P<signal>\d{1,2})\) local_rank: \d+ \(pid: (?P<pid>\d{1,9})\)"),
    re.compile(r"traceback\s{1,8}: Signal (?P<signal>\d{1,2}) \(SIG\w{1,8}\) received by PID (?P<pid>\d{1,9})(?!\d)"),
    re.compile(r"\[(?P<host>[\w.-]{1,120}):(?P<pid>\d{1,9})\] Signal: [A-Z][\w ]{1,40} \((?P<signal>\d{1,2})\)"),
    re.compile(r"\] exits with return code = -(?P<signal>\d{1,2})(?!\d)"),
)
_LIGHTNING = re.compile(r"\[rank: (?P<rank>\d{1,7})\] Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,3})\. Forcefully terminating")
_LOCAL = re.compile(r"sigkill_handler\] \[[^\n]{0,60000}?'--local_rank=(\d{1,5})'")
# Open MPI's mpirun, PRRTE's prterun; the sentence is broken where 76 columns end.
_MPI = re.compile(
    r"(?:mpirun|mpiexec|orterun|prterun)\S* noticed that process rank (\d{1,7}) with PID \d+ on node (\S{1,120}) exited on\s+signal (\d{1,2}) \("
)
# Slurm's srun, of all tasks of a node that end alike at once: `node[01-02]: tasks 0-3,7: Killed`. A shell around the program
# turns a signal into an exit code.
_SRUN = re.compile(
    r"srun: error: (?P<host>\S{1,2000}): tasks? (?P<tasks>\d[\d,-]{0,2048}): "
    r"(?:Exited with exit code (?P<code>\d{1,3})(?!\d)|(?P<signal>[A-Z][\w /]{1,40}?)(?: \(core dumped\))?\s*$)"
)
_SRUN_SIGNALS = {
    "Hangup": 1, "Interrupt": 2, "Illegal instruction": 4, "Aborted": 6, "Bus error": 7, "Floating point exception": 8, "Killed": 9,
    "Out Of Memory": 9, "Segmentation fault": 11, "Terminated": 15,
}  # fmt: skip
# From here on srun ends the other tasks, or a user, a limit or a failure elsewhere ends all; and here the step is over.
_ENDING = re.compile(r"_step_signal: Terminating StepId|srun: Terminating (?:StepId|job step)|\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT |srun: Job step aborted")
_OVER = re.compile(r"srun: Force Terminated |srun: error: Timed out waiting for job step")
MAX_TASKS = 4096  # of one line
MAX_DEATHS = 1 << 16  # of one section
_DEATH_HOST = re.compile(r"^\s*host\s{1,8}: (\S{1,120})\s*$")


def _ranks(said: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d{1,7}", said) if int(n) < MAX_RANK)


def accused_by(section: Section, line: Line) -> Iterator[Accused]:
    """The ranks that one line of a report or a barrier names."""
    clients = _CLIENTS.search(line.text) if "clients joined" in line.text else None
    if clients is not None:
        yield Accused(
            kind="waits", ranks=(0,), world=int(clients[2]), joined=int(clients[1]), origin={"*": section.at(line)}
        )
    asked = _UNIQUE_ID.search(line.text) if "ncclUniqueId" in line.text else None
    if asked is not None and int(asked[1]) < MAX_RANK and int(asked[2]) < MAX_RANK:
        kind = "id" if _WAITED.search(asked[3]) else "id lost"
        yield Accused(kind=kind, ranks=(int(asked[1]),), of=int(asked[2]), origin={"*": section.at(line)})
    if "arrier" not in line.text and "collective #" not in line.text and "lagging" not in line.text:
        return
    origin = {"*": section.at(line)}
    for pattern, kind in _NAMING:
        found = pattern.search(line.text)
        if found is not None:
            number = int(found[3]) if pattern is _BEHIND else int(found[2]) if pattern is _UNFINISHED else None
            yield Accused(kind=kind, ranks=_ranks(found[1]), seq=number, origin=origin)
    store = _STORE.search(line.text)
    if store is not None:
        yield Accused(kind="waits", ranks=_ranks(store[1]), world=int(store[2]), joined=int(store[3]), origin=origin)


def unread(section: Section) -> list[Accused]:
    """Where nothing else is understood, the first line by which a process group complains, or lost the store that rank 0 serves."""
    for line in section.lines:
        found = _LOST_STORE.search(line.text) or _COMPLAINS.search(line.text)
        if found is not None:
            rank = _OF_RANK.search(line.text)
            kind = "store" if found.re is _LOST_STORE else "unread"
            return [Accused(kind=kind, ranks=_ranks(rank[1] or rank[2]) if rank is not None else (), origin={"*": section.at(line)})]
    return []


def death_by(section: Section, lines: tuple[Line, ...], place: int) -> Death | None:
    """torchrun's table: host, rank and exitcode on three lines, under "Root Cause" for the first one seen. Or one sentence."""
    mpirun = _by_mpirun(section, lines, place) or _by_lightning(section, lines[place])
    if mpirun is not None:
        return mpirun
    found = _DEATH_CODE.search(lines[place].text)
    if found is None:
        return _by_pid(section, lines[place])
    above = lines[max(0, place - 3) : place]
    ranks = [m for m in (_DEATH_RANK.match(line.text) for line in above) if m is not None]
    hosts = [m for m in (_DEATH_HOST.match(line.text) for line in above) if m is not None]
    if not ranks or int(ranks[-1][1]) >= MAX_RANK:
        return None
    first = any("first observed failure" in line.text for line in lines[max(0, place - 6) : place])
    return Death(
        rank=int(ranks[-1][1]),
        exitcode=int(found[1]),
        host=hosts[-1][1] if hosts else None,
        pid=int(found[2]),
        first=first,
        origin={"*": section.at(lines[place])},
    )


def _by_pid(section: Section, line: Line) -> Death | None:
    if "exitcode: -" not in line.text and "ignal" not in line.text and "return code = -" not in line.text:
        return None
    found = next((m for m in (p.search(line.text) for p in _BY_PID) if m is not None), None)
    if found is None or int(found["signal"]) == 0:
        return None
    told = found.groupdict()
    pid = int(told["pid"]) if told.get("pid") else None
    local = _LOCAL.search(line.text) if pid is None else None
    if pid is None and local is None:
        return None
    return Death(
        rank=None, exitcode=-int(found["signal"]), host=told.get("host"), pid=pid, local=int(local[1]) if local else None, origin={"*": section.at(line)}
    )  # fmt: skip


def _by_lightning(section: Section, line: Line) -> Death | None:
    """Lightning's launcher: of the first process that it sees end; it then ends the others itself."""
    found = _LIGHTNING.search(line.text) if "Child process with PID" in line.text else None
    if found is None or int(found["code"]) == 0 or int(found["rank"]) >= MAX_RANK:
        return None
    return Death(rank=int(found["rank"]), exitcode=int(found["code"]), pid=int(found["pid"]), first=True, origin={"*": section.at(line)})


def each_once(deaths: Iterable[Death]) -> tuple[Death, ...]:
    """Without the lines that name a process only, where another names its rank."""
    found = tuple(dict.fromkeys(deaths))
    placed = {d.pid for d in found if d.rank is not None}
    return tuple(d for d in found if d.rank is not None or d.pid is None or d.pid not in placed)


def deaths_by_launcher(section: Section) -> tuple[Death, ...]:
    """Processes that mpirun or srun saw end, among lines of another output."""
    mpirun = (_by_mpirun(section, section.lines, place) for place in range(len(section.lines)))
    return (*(death for death in mpirun if death is not None), *_by_srun(section))


def _by_mpirun(section: Section, lines: tuple[Line, ...], place: int) -> Death | None:
    text = lines[place].text
    if "noticed that process rank" not in text:
        return None
    below = lines[place + 1] if place + 1 < len(lines) else None
    after = below.text.strip() if below is not None and below.number == lines[place].number + 1 else ""
    found = _MPI.search(f"{text.rstrip()} {after}")
    if found is None or int(found[1]) >= MAX_RANK:
        return None
    return Death(rank=int(found[1]), exitcode=-int(found[3]), host=found[2], first=True, origin={"*": section.at(lines[place])})


def _by_srun(section: Section) -> list[Death]:
    """Tasks are numbered as the ranks of a job that srun starts by itself. The first line of a step that srun then ends
    tells what ended it; the rest is what srun did."""
    out: list[Death] = []
    step: list[tuple[Line, Death]] = []  # deaths before srun ended the others
    ending = False
    for line in section.lines:
        if _OVER.search(line.text):
            step, ending = [], False
        elif _ENDING.search(line.text):
            if step and not ending:
                began = {id(death) for line_of, death in step if line_of is step[0][0]}
                out = [replace(death, first=True) if id(death) in began else death for death in out]
            ending = True
        found = _SRUN.search(line.text) if "srun: error: " in line.text else None
        code = _exitcode(found, line) if found is not None else None
        if found is None or code is None or len(out) >= MAX_DEATHS:
            continue
        for task in _tasks(found["tasks"]):
            out.append(Death(rank=task, exitcode=code, host=found["host"], after=ending, origin={"*": section.at(line)}))
            if not ending:
                step.append((line, out[-1]))
    # An exit code alone, and tasks of a step that was cancelled, tell nothing of how a job ended.
    telling = any(d.first or not d.after and d.exitcode < 0 and d.exitcode != -_SRUN_SIGNALS["Terminated"] for d in out)
    return out if telling else []


def _exitcode(found: re.Match[str], line: Line) -> int | None:
    if found["signal"]:
        number = _SRUN_SIGNALS.get(found["signal"])
        return None if number is None or line.cut else -number
    code = int(found["code"])
    if line.cut and found.end() == len(line.text) or not 0 < code < 256:
        return None
    return 128 - code if code - 128 in _SRUN_SIGNALS.values() else code


def _tasks(listed: str) -> list[int]:
    """`0-3,7` -> 0, 1, 2, 3, 7."""
    out: list[int] = []
    for part in listed.split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            out += range(int(low), min(int(high or low), int(low) + MAX_TASKS, MAX_RANK - 1) + 1)
    return out[:MAX_TASKS]
