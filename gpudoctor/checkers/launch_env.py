"""Settings given on the command line of one run: what they did to that run, and to no other."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.nccl_env import NOT_KNOWN as _UNKNOWN
from gpudoctor.checkers.nccl_env import NOTHING_LOST, advised, switch, switched_off
from gpudoctor.checkers.nccl_rules import Around
from gpudoctor.checkers.nccl_switches import RULES
from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRun
from gpudoctor.facts.launch import Launch, Launches
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.facts.trials import TELLING
from gpudoctor.model import ERROR, LIKELY, NOTE, WARNING, CannotTell, Evidence, Finding, Gain, Step
from gpudoctor.parts import find
from gpudoctor.record import KeyedRecord, replace


class _Run(KeyedRecord):
    """One output in the text, with what its command gave it."""

    what: str
    first: Evidence
    given: dict[str, Launch]
    failed: bool
    bandwidth: BandwidthRun | None = None

    @property
    def settings(self) -> Settings:
        return Settings(
            tuple(
                Setting(name=name, value=launch.settings[name], scope="environment", origin={"*": launch.at("settings")})
                for name, launch in self.given.items()
            )
        )


def by_command(facts: FactView, around: Around, told: set[tuple[str, str]]) -> Iterator[Finding | CannotTell]:
    """told: settings that are judged already as the host's own, or that NCCL itself says it took."""
    runs = _runs(facts)
    nccl = facts.get(Nccl)
    told = told | set(nccl.settings if nccl is not None else ())
    said: dict[tuple[str, str], list[_Run]] = {}
    for run in runs:
        for name, launch in run.given.items():
            said.setdefault((name, launch.settings[name]), []).append(run)
    for key, with_it in said.items():
        if key in told:
            continue
        without = [run for run in runs if run not in with_it]
        settings = Settings(tuple(s for s in with_it[0].settings if (s.name, s.value) == key))
        off = switch(settings)
        if off is not None:
            for finding in switched_off(*off, f" on the command line of {_shown(with_it, key[0])}", facts):
                yield _held_against(finding, with_it, without) if isinstance(finding, Finding) else finding
        for advice in (said for rule in RULES for said in rule(settings, around)):
            yield _of_these(advised(advice, f" on the command line of {_shown(with_it, key[0])}"), with_it, without)


def _runs(facts: FactView) -> list[_Run]:
    launches = facts.get(Launches)
    if launches is None:
        return []
    tables = list(facts.get(Bandwidth) or ())
    out = []
    for table in tables:
        first = table.at("*")
        given = launches.of(first, [other.at("*") for other in tables if other is not table])
        out.append(_Run(what=table.program or "the run", first=first, given=given, failed=bool(table.failures), bandwidth=table))
    for comm in facts.get(Nccl) or ():
        spot = _first(comm)
        given = launches.of(spot) if spot is not None else {}
        same = next((run for run in out if given and run.given == given), None)
        if same is not None:
            out[out.index(same)] = replace(same, failed=same.failed or comm.failure is not None)
        elif spot is not None:
            out.append(_Run(what="the job", first=spot, given=given, failed=comm.failure is not None))
    return out


def _first(comm: NcclComm) -> Evidence | None:
    spot = comm.at("rank")
    return spot if spot.source == comm.source else None


def _shown(runs: list[_Run], name: str) -> str:
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{runs[0].what} ({runs[0].given[name].at('settings').where}){more}"


def _of_these(finding: Finding, with_it: list[_Run], without: list[_Run]) -> Finding:
    """What is said of some runs explains nothing of the others."""
    steps = tuple(
        Step(step.step.replace("Unset it where the job is started.", "Leave it out of the command."), None, step.risk, step.verify)
        for step in finding.remediation
    )
    return replace(finding, remediation=steps, runs=tuple(run.first for run in with_it) if without else ())


def _held_against(finding: Finding, with_it: list[_Run], without: list[_Run]) -> Finding:
    """The finding by what the runs themselves show: whether one without the setting failed, how fast it was, which GPUs ran."""
    finding = _of_these(finding, with_it, without)
    if any(run.failed for run in without) and not any(run.failed for run in with_it):
        return _note(finding, "A run without it in the same input failed, so this is a way around that fault and not the cause.")
    slow = next((run.bandwidth for run in with_it if run.bandwidth is not None and run.bandwidth.plateau_busbw_gbs), None)
    like = [
        run.bandwidth
        for run in without
        if run.bandwidth is not None
        and run.bandwidth.plateau_busbw_gbs
        and slow is not None
        and (run.bandwidth.collective, run.bandwidth.nranks) == (slow.collective, slow.nranks)
    ]
    if slow is None or not like:
        return _by_part(finding, with_it)
    fast = max(like, key=lambda run: run.plateau_busbw_gbs or 0.0)
    low, high = slow.plateau_busbw_gbs or 0.0, fast.plateau_busbw_gbs or 0.0
    words = f"With it the run levels out at {low:.3g} GB/s, without it at {high:.3g}"
    if high <= TELLING * low:  # over NVLink both are held back, by whatever it is
        return finding if finding.severity == ERROR else _note(finding, f"{words}: it costs nothing there.")
    of_part = _by_part(finding, with_it)
    finding = of_part if of_part.severity == ERROR else finding
    # What the runs show need not be known of the part.
    told = " ".join(finding.message.replace(_UNKNOWN, "").split())
    return replace(
        finding,
        severity=WARNING if finding.severity == NOTE else finding.severity,
        message=f"{told} {words}.",
        evidence=(*finding.evidence, fast.at("rows")),
        cost=f"{low:.3g} instead of {high:.3g} GB/s, measured with and without it",
        gain=Gain(round(low, 1), round(high, 1), "GB/s"),
    )


def _note(finding: Finding, words: str) -> Finding:
    return replace(finding, severity=NOTE, message=f"{finding.message} {words}", remediation=(), cost=None)


def _by_part(finding: Finding, runs: list[_Run]) -> Finding:
    """Where the host's own GPUs are not in the input, the run's list of devices tells the part."""
    names = {member.name for run in runs if run.bandwidth is not None for member in run.bandwidth.members}
    parts = [find(None, name) for name in names]
    if finding.severity != WARNING or _UNKNOWN not in finding.message or not parts or None in parts:
        return finding
    known = [part for part in parts if part is not None]
    if all(part.p2p is False and not part.nvlink for part in known):
        return replace(finding, severity=NOTE, message=finding.message.replace(_UNKNOWN, NOTHING_LOST), remediation=())
    if all(part.required for part in known):
        message = finding.message.replace(_UNKNOWN, "Boards of these GPUs have NVLink, which is idle then.")
        return replace(finding, severity=ERROR, message=message, confidence=LIKELY)
    return finding
