"""One run of the gate: what was seen, what was measured, and the judgement over both."""

from __future__ import annotations

import os
import time
from datetime import date
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpudoctor.cli.look import Look
    from gpudoctor.discover import Plugins
    from gpudoctor.ingest import Intake
    from gpudoctor.model import Missing, Report
    from gpudoctor.policy.allocation import Allocation
    from gpudoctor.policy.model import Policy
    from gpudoctor.policy.outcome import Outcome
    from gpudoctor.policy.weigh import Weighed

LOOK_MOST_S = 60.0  # of a longer limit the measurement gets the rest
JOB_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


class Gate:
    """Look, judge, measure, judge again. Every step may be left out but the first two."""

    def __init__(
        self, plugins: Plugins, policy: Policy | None, source: str | None, fail_on: str, look_s: float, measure_s: float
    ) -> None:
        self.plugins = plugins
        self.policy = policy
        self.source = source
        self.fail_on = fail_on
        self.look_s = look_s
        self.measure_s = measure_s
        self.began = time.monotonic()
        self.measuring = False
        self.measured: dict[str, Any] | None = None
        self.unanswered: tuple[Missing, ...] = ()
        self.notes: list[str] = []
        self.seen: Look
        self.intake: Intake
        self.given: Allocation
        self.outcomes: tuple[Outcome, ...] = ()
        self.weighed: Weighed
        self.report: Report

    def look(self) -> None:
        from gpudoctor.cli.look import look
        from gpudoctor.facts.gpu import Gpus
        from gpudoctor.facts.pci import PciTree
        from gpudoctor.facts.system import Grant
        from gpudoctor.policy.allocation import allocation

        self.seen = look((), True, False, min(self.look_s, LOOK_MOST_S))
        self.intake = self.seen.intake
        store = self.intake.stores[0] if self.intake.stores else None
        # A prolog has the variable itself; inside a job the look at the host saw it.
        variable = next((name for name in JOB_GPUS if os.environ.get(name)), "SLURM_JOB_GPUS")
        grant = store.get(Grant) if store is not None else None
        words = os.environ.get(variable) or (grant.entry.slurm_gpus if grant is not None else None)
        gpus, tree = (store.get(Gpus), store.get(PciTree)) if store is not None else (None, None)
        self.given = allocation(words, gpus, variable, tree)

    def judge(self) -> None:
        from gpudoctor.judge import judge
        from gpudoctor.policy import rules
        from gpudoctor.policy.weigh import weigh

        self.outcomes = ()
        if self.intake.stores:
            store = self.intake.stores[0]
            self.outcomes = (
                self.given.outcomes
                if self.policy is None
                else rules.judge(self.policy, store, self.given, self.measuring)
            )

        def adjust(results: Any) -> Any:
            self.weighed = weigh(results, self.policy, self.given, self.outcomes, date.today().isoformat())
            return self.weighed.results

        self.report = judge(
            self.intake,
            self.plugins,
            self.seen.source,
            fail_on=self.fail_on,
            timed_out=self.seen.timed_out,
            seconds=time.monotonic() - self.began,
            notes=(*self.seen.notes, *self._notes()),
            unanswered=(*self.unanswered, *(o.missing for o in self.outcomes if o.status == "unknown")),
            adjust=adjust,
        )

    def wants_measurement(self, asked: bool | None) -> bool:
        """A node that failed already is not measured: the line would be no other, and a sick GPU may hang."""
        wanted = asked if asked is not None else self.policy is not None and self.policy.measured is not None
        if not wanted:
            if asked is False and self.policy is not None and self.policy.measured is not None:
                self.notes.append("[measured] of the policy was left out (--no-bandwidth)")
                self.judge()
            return False
        # What only a measurement can tell is no reason against one.
        open_ = [m for m in self.report.missing if m.needed and not m.fact.startswith("pcie.generation")]
        if self.report.verdict == "fail" or (self.report.verdict == "unknown" and open_):
            self.notes.append("nothing was measured: the check alone did not pass")
            self.judge()
            return False
        if asked is None and self._alone():
            self.notes.append("nothing was measured: between GPUs there is nothing to, with one GPU here")
            self.judge()
            return False
        return True

    def _alone(self) -> bool:
        """One GPU, of which the policy asks for nothing but what several reach together."""
        from gpudoctor.facts.gpu import Gpus

        store = self.intake.stores[0] if self.intake.stores else None
        gpus = store.get(Gpus) if store is not None else None
        rules = self.policy.measured if self.policy is not None else None
        if gpus is None or rules is None or rules.gpus != "all" or rules.host_copies or self._load_wanted():
            return False
        return sum(self.given.has(g.index) for g in gpus.listed) == 1

    def _load_wanted(self) -> bool:
        return self.policy is not None and self.policy.pcie is not None and self.policy.pcie.generation is not None

    def measure(self, python: str | None, nccl_tests: str | None) -> None:
        from gpudoctor.bandwidth.guard import room
        from gpudoctor.bandwidth.options import Options
        from gpudoctor.bandwidth.plan import Unusable
        from gpudoctor.bandwidth.verdict import measure
        from gpudoctor.cli.look import snapshot_of_host
        from gpudoctor.facts.bandwidth import Wanted
        from gpudoctor.policy.model import MeasuredRules
        from gpudoctor.record import replace

        rules = (self.policy.measured if self.policy is not None else None) or MeasuredRules(host_copies=True)
        options = Options(
            gpus=self._gpus(rules.gpus),
            collective=rules.collective,
            bisect=False,
            host_copies=rules.host_copies or self._load_wanted(),
            python=python,
            nccl_tests=nccl_tests,
        )
        until = self.began + self.measure_s
        with room() as folder:
            try:
                done = measure(
                    options,
                    Wanted(),
                    self.plugins,
                    dict(os.environ),
                    folder,
                    until,
                    lambda *_: None,
                    snapshot_of_host,
                    self.fail_on,
                )
            except Unusable as error:
                raise click.UsageError(str(error)) from error
        self.measuring = True
        self.measured = done.extra
        # The policy's own limit is what a measurement is held against: no other is needed.
        own = rules.min_busbw_gbs is not None
        self.unanswered = tuple(
            m for m in done.report.missing if m.needed and not (own and m.fact == "what the links should give")
        )
        stores: tuple[Any, ...] = done.report.hosts
        if stores:
            self.intake = replace(self.intake, stores=stores)

    def _gpus(self, words: int | str) -> str:
        """In the words of `gpudoctor bandwidth --gpus`: the job's own GPUs, or so many of them."""
        if self.given.ours is None:
            return str(words)
        mine = sorted(self.given.ours)
        if isinstance(words, int):
            if words > len(mine):
                return str(words)  # more than there are: bandwidth says so
            mine = mine[:words]
        return ",".join(map(str, mine)) + ("," if len(mine) == 1 else "")

    def line(self) -> str:
        from gpudoctor.policy.line import line

        return line(self.report, self.outcomes, self.policy)

    def page(self) -> str:
        from gpudoctor.report import text

        return text.render(self.report, verbose=1)

    def extra(self, line: str) -> dict[str, Any]:
        from gpudoctor.policy.summary import summary

        own = summary(self.policy, self.source, self.outcomes, self.weighed, self.given, line)
        return {"gate": own, **({"bandwidth": self.measured} if self.measured is not None else {})}

    def _notes(self) -> list[str]:
        notes = list(self.notes)
        if self.policy is not None:
            notes.append(f"held against the policy {self.policy.name} ({self.source})")
        if self.given.ours is not None:
            notes.append(f"only this job's GPUs are judged ({self.given.told_by})")
        return notes
