"""A hang in JSON (an entry of `nccl`, as the contract asks of a framework's log) and as a compact picture."""

from __future__ import annotations

from typing import Any

from gpudoctor.facts.hang import FlightRecorder, RankWork, Ras, Watchdog
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Software
from gpudoctor.hang import MISMATCH, Hang, collective, error_slug, hangs, listing, world_of
from gpudoctor.report.layout import Style, counted, hanging

_COLUMN = 13
_SHOWN = 40  # lines that an entry quotes
MAX_GROUPS = 6


def found_in(store: FactStore) -> tuple[Hang, ...]:
    """The hangs that this store's sources show."""
    watchdog = store.get(Watchdog)
    return hangs(watchdog, store.get(FlightRecorder), world_of(store.get(Nccl), watchdog))


def nccl_entries(store: FactStore) -> list[dict[str, Any]]:
    """One entry a hang; one for a log in which the watchdog ended because of an error."""
    watchdog, recorder, ras = store.get(Watchdog), store.get(FlightRecorder), store.get(Ras)
    found = found_in(store) if watchdog is not None or recorder is not None else ()
    version = next((d.nccl_version for d in recorder.dumps if d.nccl_version), None) if recorder is not None else None
    software = store.get(Software)
    version = version or (software.versions.get("nccl") if software is not None else None)
    out = []
    for hang in found:
        lines = [e.value for v in list(hang.views.values())[:_SHOWN] for e in v.evidence]
        out.append(
            _entry(version, len(hang.members) if hang.members is not None else None, lines, "rank-mismatch" if hang.kind == MISMATCH else "collective-timeout")
            | {
                "collective": collective(hang),
                "waiting_ranks": list(hang.waiting),
                "suspect_ranks": list(hang.suspects),
                "ranks_are_global": hang.overall,
            }
        )
    works = watchdog.works if watchdog is not None else ()
    if not found and any(w.error or w.stuck for w in works):
        lines = [w.error or w.at("stuck").value for w in works if w.error or w.stuck]
        out.append(_entry(version, None, lines, _slug([w for w in works if w.error])))
    elif not found and any(w.told_by is not None for w in works):
        out.append(_entry(version, None, [w.at("*").value for w in works if w.told_by is not None], "collective-timeout"))
    elif not found and any(w.rank is None and w.group_rank is None and (w.timed_out or w.signalled) for w in works):
        out.append(_entry(version, None, [w.at("*").value for w in works if w.timed_out or w.signalled], "collective-timeout"))
    compared = [a for a in watchdog.accused if a.kind not in ("waits", "left", "id lost", "stalled", "rendezvous", "store", "unread")] if watchdog is not None and not found else []
    if compared:
        differ = all(a.kind in ("calls", "odd") for a in compared)
        out.append(_entry(version, None, [a.at("*").value for a in compared], "rank-mismatch" if differ else "collective-timeout"))
    for answer in ras.answers[-1:] if ras is not None else ():
        for comm in answer.comms or answer.groups:
            wrong = bool(comm.missing or comm.failed)
            out.append(_entry(answer.nccl_version, comm.size, [comm.at("*").value] if comm.errors != "OK" else [], "peer-died" if wrong else None))
    return out


def _entry(version: str | None, nranks: int | None, lines: list[str], failure: str | None) -> dict[str, Any]:
    return {
        "version": version,
        "nranks": nranks,
        "nnodes": None,
        "transports": [],
        "channels": None,
        "env": {},
        "warnings": list(dict.fromkeys(lines))[:_SHOWN],
        "failure": failure,
        "comm_id": None,
        "truncated": False,
        "tuning": None,
        "init": None,
        "choices": None,
    }


def _slug(failed: list[RankWork]) -> str:
    """An error of its own on one rank makes remote errors on the others."""
    slugs = [error_slug(w) or "network-error" for w in failed]
    return next((s for s in slugs if s != "peer-died"), "peer-died") if slugs else "collective-timeout"


def view(store: FactStore, style: Style) -> list[str]:
    """Who waits and who is behind, in a line each however many ranks there are."""
    lines: list[str] = []
    found = found_in(store) if Watchdog in store or FlightRecorder in store else ()
    for hang in found[:MAX_GROUPS]:
        lines += hanging(f"{'Hang' if not lines else '':<{_COLUMN}}", " " * _COLUMN, f"{collective(hang)}: {_state(hang)}", style)
    if len(found) > MAX_GROUPS:
        lines.append(f"{'':<{_COLUMN}}and {len(found) - MAX_GROUPS} more process groups")
    return lines


def _state(hang: Hang) -> str:
    words = [f"{'rank' if len(hang.waiting) == 1 else 'ranks'} {listing(hang.waiting)} wait{'s' if len(hang.waiting) == 1 else ''}"] if hang.waiting else []
    if hang.suspects:
        words.append(f"{hang.kind}: {listing(hang.suspects)}")
    total = len(hang.members) if hang.members is not None else None
    told = len(hang.views)
    words.append(f"{told} of {total} ranks said something" if total is not None else f"{counted(told, 'rank')} said something")
    return ", ".join(words)
