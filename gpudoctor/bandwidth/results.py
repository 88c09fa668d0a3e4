"""What a session brought: into the facts of the host, and what belongs to the measurement alone into the JSON."""

from __future__ import annotations

import time
from typing import Any

from gpudoctor.bandwidth.session import Session
from gpudoctor.bandwidth.settings import KEPT
from gpudoctor.facts.bandwidth import Bandwidth, HostCopies, PairRates, Wanted
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Settings


def put_facts(session: Session, store: FactStore, wanted: Wanted) -> None:
    """Everything measured, into the facts of this host."""
    parts = (session.measured, *session.parts)
    runs = tuple(dict.fromkeys(m.run for m in parts if m.run is not None))
    if runs:
        store.put(Bandwidth(runs))
    rates = tuple(rate for m in parts for rate in m.pairs)
    copies = tuple(copy for m in parts for copy in m.copies)
    if rates:
        store.put(PairRates(rates))
    if copies:
        store.put(HostCopies(copies))
    store.put(wanted)
    given = store.get(Settings)
    if given is not None or session.site.entries:
        # What NCCL obeyed in these runs: a replayed host was recorded with another environment.
        rest = tuple(s for s in given or () if s.name not in KEPT and not s.name.startswith("NCCL_"))
        store.put(Settings((*session.site.entries, *rest)))


def put_trials(session: Session, store: FactStore) -> None:
    """What the look into a miss brought."""
    if session.trials is not None:
        store.put(session.trials)
    if session.pair_search is not None and session.pair_search.rates:
        store.put(PairRates((*(store.get(PairRates) or ()), *session.pair_search.rates)))


def own_json(session: Session) -> dict[str, Any]:
    """What belongs to the measurement alone; rows and levels are among the facts."""
    run = session.measured.run
    on_gpus = session.options.backend == "nccl"
    copies = [r.gbs for m in (session.measured, *session.parts) for r in m.pairs if r.what == "copy write"]
    return {
        "engine": session.engine.name if session.engine is not None else None,
        "program": session.measured.engine or None,
        "backend": session.options.backend,
        "collective": session.options.collective,
        "gpus": [{"index": t.index, "bdf": t.bdf, "name": t.name} for t in session.targets if on_gpus],
        "ranks": len(session.targets),
        "plateau_busbw_gbs": run.plateau_busbw_gbs if run is not None else None,
        "latency_us": run.latency_us if run is not None else None,
        "spread_pct": session.measured.spread_pct,
        "copy_between_gpus_gbs": min(copies, default=None),
        "seconds": {
            "total": round(time.monotonic() - session.began, 2),
            "until_engine_ready": round(session.engine_s, 2),
            "measuring": round(sum(m.seconds for m in (session.measured, *session.parts)), 2),
        },
        "trials": [
            {
                "what": t.what, "from": t.before_gbs, "to": t.after_gbs, "unit": "GB/s", "culprit": t.culprit,
                "setting": {"name": t.name, "value": t.value, "scope": t.scope} if t.name else None, "reason": t.why_not,
            }
            for t in session.trials or ()
        ],
        "pair_search": session.pair_search.as_json() if session.pair_search is not None else None,
        "notes": list(session.notes),
    }  # fmt: skip
