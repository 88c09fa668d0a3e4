"""What mpirun, srun, ssh and torchrun print when a job does not even start, each by the sentence that tells the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.launch import StartFailure, StartFailures
from gpudoctor.read.section import Line, Section

_WORDS = 200  # characters of the launcher's own that are kept
_MORE = 2  # lines that a sentence of mpirun's goes on for


class _Kind(NamedTuple):
    name: str
    who: str
    pattern: re.Pattern[str]


def _kind(name: str, who: str, pattern: str) -> _Kind:
    return _Kind(name, who, re.compile(pattern))


# The nearer to the reason, the earlier: what stands further down often only follows.
KINDS = (
    _kind("unreachable", "ssh", r"ssh: connect to host (?P<peer>\S{1,120}) port (?P<port>\d{1,5}): (?:Connection (?:refused|timed out)|No route to host|Network is unreachable)"),
    _kind("unreachable", "mpiexec", r"unable to connect from \"[^\"]{1,120}\" to \"(?P<peer>[^\"]{1,120})\" \((?:No route to host|Connection (?:refused|timed out))\)"),
    _kind("no-name", "ssh", r"ssh: Could not resolve hostname (?P<peer>[^\s:]{1,120})"),
    _kind("no-login", "ssh", r"Host key verification failed\.|Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)"),
    _kind("no-daemon", "mpirun", r"\b(?:orted|prted|prte|hydra_pmi_proxy|hydra_bstrap_proxy): (?:command )?not found|(?:orted|prted|hydra_pmi_proxy): (?:No such file or directory|error while loading shared libraries)"),
    _kind("no-program", "mpirun", r"mpi(?:run|exec) was unable to (?:launch|find) the specified (?:application|executable)"),
    _kind("no-program", "srun", r"error: execve\(\): \S{1,200}: (?:No such file or directory|Permission denied)"),
    _kind("no-slots", "mpirun", r"There are not enough slots available in the system|All nodes which are allocated for this job are already filled"),
    _kind("as-root", "mpirun", r"has detected an attempt to run as root"),
    _kind("no-pmi", "Open MPI", r"appears to have been direct launched using \"srun\""),
    _kind("refused", "srun", r"^\s*(?:srun|sbatch|salloc): error: (?:Unable to (?:allocate resources|create step for job \d|confirm allocation|contact slurm)|Task launch for |Application launch failed|Batch job submission failed|Invalid (?:account|partition|generic resource|job id)|Job submit/allocate failed)"),
    _kind("daemon-lost", "mpirun", r"(?:PRTE|ORTE) has lost communication with a remote daemon"),
    _kind("daemon-failed", "mpirun", r"(?:ORTE|PRTE) was unable to reliably start one or more daemons|An? (?:ORTE|PRTE) daemon has unexpectedly failed|(?:ORTE|PRTE) does not know how to route a message"),
    _kind("port-taken", "torchrun", r"(?:RuntimeError|DistNetworkError|ConnectionError): The server socket has failed to listen on any local network address"),
    _kind("no-store", "torchrun", r"RendezvousConnectionError(?:: |\s*$)"),
    _kind("not-all", "torchrun", r"RendezvousTimeoutError(?:: |\s*$)"),
    _kind("closed", "torchrun", r"RendezvousClosedError(?:: |\s*$)"),
)  # fmt: skip


# What torchrun says once the nodes have met: an attempt before it was only an early one.
_MET = re.compile(r"Rendezvous complete for workers|has joined round \d{1,9} of the rendezvous .{1,200} as rank \d{1,9} in a world of size \d|Rendezvous'ed worker group")
_OF_RENDEZVOUS = ("no-store", "not-all", "closed")


def parse(section: Section) -> Iterator[Fact | Loss]:
    found: dict[tuple[str, str | None], StartFailure] = {}
    for place, line in enumerate(section.lines):
        if _MET.search(line.text) is not None:
            found = {key: failure for key, failure in found.items() if failure.kind not in _OF_RENDEZVOUS}
            continue
        for order, kind in enumerate(KINDS):
            match = kind.pattern.search(line.text)
            if match is None or line.cut and match.end() == len(line.text):
                continue
            told = match.groupdict()
            peer = told.get("peer")
            found.setdefault(
                (kind.name, peer),
                StartFailure(
                    kind=kind.name, who=kind.who, order=order, words=_words(section.lines, place, match.start(), kind.who), peer=peer,
                    port=int(told["port"]) if "port" in told else _port(line), origin={"*": section.at(line)},
                ),
            )  # fmt: skip
            break
    if found:
        yield StartFailures(tuple(found.values()))


def _words(lines: tuple[Line, ...], place: int, start: int, who: str) -> str:
    """The sentence from where it begins; Open MPI breaks its own at 72 columns."""
    text = lines[place].text[start:].strip()
    for at in range(place + 1, min(place + 1 + _MORE, len(lines)) if who in ("mpirun", "Open MPI") else 0):
        more = lines[at].text.strip()
        if text.endswith((".", ":")) or not (more[:1].islower() or more[:1].isdigit()) or lines[at].cut or lines[at].number != lines[at - 1].number + 1:
            break
        text = f"{text} {more}"
    return text[:_WORDS]


def _port(line: Line) -> int | None:
    found = re.search(r"\bport: (\d{1,5})(?=\D)|\]:(\d{1,5}) \(errno", line.text)
    return int(found[1] or found[2]) if found is not None else None
