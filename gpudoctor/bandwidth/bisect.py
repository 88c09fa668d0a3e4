"""After a miss: short runs under one change each, until it is known what holds the bandwidth back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gpudoctor.bandwidth.plan import SHORT
from gpudoctor.bandwidth.settings import P2P, Change, Site, place
from gpudoctor.bandwidth.work import Engine, Measured, Progress, Work
from gpudoctor.facts.system import Setting
from gpudoctor.facts.trials import TELLING, Trial
from gpudoctor.model import Evidence
from gpudoctor.record import replace

NEARLY = 0.95  # of what the clean environment reached: this change alone explains the miss
SHORT_S = 4.0  # of one variation, all sizes together
LEAST_S = 5.0  # left until the deadline: too little for another run


class Bisect:
    """Runs the variations. `trials` has every one, in the order in which they were made."""

    def __init__(
        self, engine: Engine, work: Work, site: Site, before_gbs: float, progress: Progress, allow_p2p: bool
    ) -> None:
        top = max(work.sizes)
        sizes = tuple(s for s in (SHORT if work.backend == "nccl" else work.sizes[-3:]) if s <= top) or work.sizes[-1:]
        self.work = replace(
            work, sizes=sizes, repeats=1, rounds=10, seconds=SHORT_S, host_copies=False, proof=False, pairs=()
        )
        self.engine = engine
        self.site = site
        self.before = before_gbs
        self.progress = progress
        self.allow_p2p = allow_p2p
        self.trials: list[Trial] = []
        self.log = b""  # NCCL's, of the latest run
        self.clean: tuple[tuple[str, ...], bytes] | None = None  # settings that were away, and the log of that run

    def run(self, elsewhere: Callable[[], bool] = lambda: False) -> tuple[Trial, ...]:
        """Settings first; then what `elsewhere` looks at, and only where that found nothing the other ways."""
        candidates = self.site.candidates()
        reasons = {s.name: self.site.why_not(s, self.allow_p2p) for s in candidates}
        for setting in candidates:
            if reasons[setting.name] is not None:
                self._say(setting, why_not=reasons[setting.name])
        tried = [s for s in candidates if reasons[s.name] is None]
        best = self._settings(tried)
        if best < self.before * TELLING and not elsewhere():
            self._variations([s.name for s in tried])
        return tuple(self.trials)

    def after_failure(self) -> tuple[Trial, ...]:
        """One run without peer to peer: does what hung, crashed or mangled data work through host memory?"""
        words = "peer to peer off"
        reached, why = self._measure(words, Change(put={"NCCL_P2P_DISABLE": "1", **self.site.kept()}))
        said = why or (f"the run works, at {reached:.4g} GB/s" if reached is not None else "the run works")
        return (
            Trial(
                what=words, after_gbs=reached, why_not=why, origin={"*": Evidence("gpudoctor bandwidth", words, said)}
            ),
        )

    def _settings(self, tried: list[Setting]) -> float:
        """All of them away at once; if that helps, which one. Returns the best level reached."""
        if not tried:
            return self.before
        if len(tried) > 1:
            clean = self._try(
                "clean environment (without " + ", ".join(s.name for s in tried) + ")",
                self.site.without(s.name for s in tried),
            )
            if clean is not None:
                self.clean = tuple(s.name for s in tried), self.log
            if clean is None or clean < self.before * TELLING:
                return clean or self.before
        else:
            clean = None
        best = self.before
        for setting in tried:
            reached = self._one(setting, clean)
            best = max(best, reached or 0.0)
            if clean is not None and reached is not None and reached >= clean * NEARLY:
                return best
        if clean is not None and best < clean * NEARLY:
            self._together(tried, clean)
            best = clean
        return best

    def _one(self, setting: Setting, clean: float | None) -> float | None:
        """Without this setting alone."""
        change = self.site.without((setting.name,))
        reached, why = self._measure(f"without {setting.name}", change)
        if reached is not None and self.clean is None:
            self.clean = (setting.name,), self.log
        culprit = (
            reached is not None and reached >= self.before * TELLING and (clean is None or reached >= clean * NEARLY)
        )
        self._say(setting, reached, culprit, why)
        return reached

    def _together(self, tried: list[Setting], clean: float) -> None:
        """No single one explains it: take them away one after the other, and keep those without which it does not work."""
        names = [s.name for s in tried]
        for setting in tried:
            without = [n for n in names if n != setting.name]
            if not without:
                continue
            reached, _ = self._measure(f"with {setting.name} alone", self.site.without(without))
            if reached is not None and reached >= clean * NEARLY:
                names = without  # it does no harm: leave it in place from here on
        for setting in tried:
            if setting.name in names:
                others = ", ".join(n for n in names if n != setting.name)
                self._say(setting, clean, culprit=True, beside=f" together with {others}" if others else "")

    def _variations(self, clean: list[str]) -> None:
        """The settings are not it: other transports, the process's CPUs."""
        base = self.site.without(clean)
        changes: list[tuple[str, dict[str, str], bool]] = []
        if self.work.backend == "nccl":
            off = self.site.p2p_off()
            forbidden = self.site.p2p_off_by_site() is not None and not self.allow_p2p
            if not off:
                changes.append(("peer to peer off", {"NCCL_P2P_DISABLE": "1"}, False))
            if forbidden:
                self.trials.append(Trial(what="peer to peer at every distance", why_not="off in a file of this site: tried with --allow-p2p only"))
            else:
                changes.append(
                    ("peer to peer at every distance", {"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS"}, False)
                )
            changes.append(("shared memory off", {"NCCL_SHM_DISABLE": "1"}, False))
        changes.append(("every CPU of this host allowed", {}, True))
        for words, put, all_cpus in changes:
            self._try(
                words,
                Change(put={**base.put, **put, **self.site.kept()}, unset=tuple(n for n in base.unset if n not in put)),
                all_cpus,
            )

    def _try(self, words: str, change: Change, all_cpus: bool = False) -> float | None:
        reached, why = self._measure(words, change, all_cpus)
        self.trials.append(
            Trial(
                what=words,
                before_gbs=self.before,
                after_gbs=reached,
                why_not=why,
                origin=self._origin(words, reached, why),
            )
        )
        return reached

    def _measure(self, words: str, change: Change, all_cpus: bool = False) -> tuple[float | None, str | None]:
        if self.work.until - time.monotonic() < LEAST_S:
            return None, "no time was left (--timeout)"
        self.progress(f"trying {words}", 0.0)
        settings = {n: v for n, v in {**self.work.settings, **change.put}.items() if n not in change.unset}
        # Peer to peer that this run brings back was not proven by the first one.
        proof = (
            self.work.backend == "nccl" and self.site.p2p_off() and any(n in P2P for n in (*change.put, *change.unset))
        )
        work = replace(self.work, set=change.put, unset=change.unset, all_cpus=all_cpus, settings=settings, proof=proof)
        measured: Measured = self.engine.run(work, lambda stage, share: self.progress(f"trying {words}", share))
        self.log = measured.log
        if measured.stopped is not None:
            return None, measured.stopped
        run = measured.run
        if run is None or run.failures or not run.rows:
            return None, run.failures[0].text if run is not None and run.failures else "it gave no row"
        if run.wrong:
            return None, "it returned wrong data"
        return run.plateau_busbw_gbs, None

    def _say(
        self,
        setting: Setting,
        after: float | None = None,
        culprit: bool = False,
        why_not: str | None = None,
        beside: str = "",
    ) -> None:
        words = f"without {setting.name}={setting.value}{beside}"
        spot = setting.at("value")
        evidence = Evidence(spot.source, spot.where, f"{place(setting)}: " + _outcome(self.before, after, why_not))
        self.trials.append(
            Trial(
                what=words,
                before_gbs=self.before,
                after_gbs=after,
                name=setting.name,
                scope=setting.scope,
                value=setting.value,
                culprit=culprit,
                why_not=why_not,
                origin={"*": evidence},
            )  # fmt: skip
        )

    def _origin(self, words: str, after: float | None, why_not: str | None) -> dict[str, Evidence]:
        return {"*": Evidence("gpudoctor bandwidth", words, _outcome(self.before, after, why_not))}


# What a variation means that helps although no setting is to blame.
_MEANS = {
    "peer to peer off": "going through host memory is faster than peer to peer: look for ACS, an IOMMU or a slow link between the GPUs",
    "peer to peer at every distance": "NCCL's own rule leaves peer to peer unused at this distance: NCCL_P2P_LEVEL=SYS makes it use it",
    "shared memory off": "host memory is the slow way here: look at the CPUs and the memory that the ranks are bound to",
    "every CPU of this host allowed": "this process may not use the CPUs near the GPUs: start it with another affinity (taskset, --cpu-bind)",
}


def telling(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Sentences on the variations that helped."""
    return tuple(
        f"{t.what}: {t.after_gbs:.4g} instead of {t.before_gbs:.4g} GB/s; {_MEANS[t.what]}"
        for t in trials
        if t.what in _MEANS and t.gain is not None and t.gain >= TELLING
    )


def _outcome(before: float, after: float | None, why_not: str | None) -> str:
    return why_not or (f"{after:.4g} instead of {before:.4g} GB/s" if after is not None else "no level")
