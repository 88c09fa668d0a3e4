"""A job that did not start, by its launcher's words, as far as one of the catalogue's causes is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.checkers.job_causes import COLLECTIVE_TIMEOUT
from gpudoctor.checkers.nccl_causes import CUDA_ERROR, NETWORK_ERROR, PEER_DIED, RANK_MISMATCH
from gpudoctor.facts.launch import StartFailure, StartFailures
from gpudoctor.model import ERROR, LIKELY, CannotTell, Finding, Step

_COST = "The job does not start."
# A host as it may stand in a command that a reader pastes into a shell: a log may name anything.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


def never_started(failures: StartFailures, launched: bool, alone: bool) -> Iterator[Finding | CannotTell]:
    """launched: the input shows a launcher's command. alone: nothing else speaks of a framework, so that no run was looked at."""
    first = failures.first
    if first is None:
        return
    finding = None
    if first.kind == "unreachable" and (launched or failures.of_a_job):
        finding = _network(first, failures)
    elif first.kind in ("no-store", "not-all"):
        finding = _store(first) if first.kind == "no-store" else _absent(first)
    if finding is not None:
        yield finding
    if alone:
        for cause in (COLLECTIVE_TIMEOUT, RANK_MISMATCH, PEER_DIED, NETWORK_ERROR, CUDA_ERROR):
            if finding is None or finding.slug != cause.slug:
                yield CannotTell(cause.slug, f"the job did not start: {first.who} says `{first.words}`")


def _network(first: StartFailure, failures: StartFailures) -> Finding:
    all_of = [f for f in failures.failures if f.kind == "unreachable"]
    hosts = ", ".join(dict.fromkeys(f.peer for f in all_of if f.peer))
    peer = first.peer if first.peer is not None and _HOST.fullmatch(first.peer) else "HOST"
    port = first.port if first.port is not None else 22
    return Finding(
        NETWORK_ERROR.slug, ERROR, "host",
        f"The launcher could not reach {hosts}: {first.who} says `{first.words}`. No rank was started there, so NCCL had no part in it.",
        tuple(f.at("*") for f in all_of[:8]), LIKELY, _COST,
        (
            Step("Is that host up, and does its ssh daemon listen", f"nc -vz {peer} {port}"),
            Step("Can this user log in there without a question", f"ssh -o BatchMode=yes {f'-p {port} ' if port != 22 else ''}{peer} true"),
        ),
    )  # fmt: skip


def _store(first: StartFailure) -> Finding:
    return Finding(
        NETWORK_ERROR.slug, ERROR, "host",
        f"torchrun could not reach its rendezvous: `{first.words}`. The process that serves it is not up or ended, the address is one that the hosts do not share, or a firewall is in the way.",
        (first.at("*"),), LIKELY, _COST,
        (
            Step("On the host of --rdzv-endpoint: does the first agent run and listen", "ss -ltnp"),
            Step("From the others: what the name resolves to, and whether the port answers", 'getent hosts "$MASTER_ADDR"; nc -vz "$MASTER_ADDR" "$MASTER_PORT"'),
        ),
    )  # fmt: skip


def _absent(first: StartFailure) -> Finding:
    return Finding(
        COLLECTIVE_TIMEOUT.slug, ERROR, "host",
        "Not all nodes came to torchrun's rendezvous within its time (RendezvousTimeoutError): an agent was not started, or started with another --rdzv-id, --rdzv-endpoint or --nnodes. "
        "Which one, the input does not show.",
        (first.at("*"),), LIKELY, _COST,
        (
            Step("On every host: does torchrun run, and with the same --nnodes, --rdzv-id and --rdzv-endpoint", "pgrep -af torchrun"),
            Step("Does the endpoint answer from there", 'nc -vz "$MASTER_ADDR" "$MASTER_PORT"'),
        ),
    )  # fmt: skip
