"""GD601 p2p-disabled-env, GD602 nccl-env: variables and config files that make NCCL slower than the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.checkers.nccl_rules import Advice, Around, on_one_host, release_of
from gpudoctor.checkers.nccl_switches import RULES
from gpudoctor.checkers.traffic import can_peer, pcie_peer
from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.launch import Launches
from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Cpu, JobProcess, Jobs, Setting, Settings, Software
from gpudoctor.facts.topology import Nics, NvLinks, Pair, Pairs
from gpudoctor.facts.trials import Trial, Trials
from gpudoctor.model import CERTAIN, ERROR, NOTE, WARNING, CannotTell, Cause, Evidence, Finding, Gain, Step, Threshold
from gpudoctor.nccl_defaults import strtol as strtol
from gpudoctor.parts import find
from gpudoctor.record import replace

P2P_DISABLED_ENV = Cause(
    "GD601",
    "p2p-disabled-env",
    "A setting switches peer to peer off",
    "pair known to have NVLink: error; unknown or driver OK: warning; part without peer to peer: note",
    "NCCL_P2P_DISABLE=1 (only exactly 1; other values do nothing) or NCCL_P2P_LEVEL=LOC sends every byte between "
    "GPUs of a host through "
    "host memory, NVLink or not. Lower levels than the pair's path do the same for that pair. It is often left over "
    "from hunting a "
    "hang, or set in an image for cards that cannot do peer to peer. Measured on two H200 with 18 NVLinks: 28 "
    "instead of 328 GB/s. "
    "The variable in the environment wins over ~/.nccl.conf, that over /etc/nccl.conf.",
    "env | grep NCCL_; /etc/nccl.conf, ~/.nccl.conf; NCCL_DEBUG=INFO prints what it took",
    "Remove the setting and measure. If the job then hangs or computes wrong results, the real fault is elsewhere "
    "(ACS, IOMMU).",
)
NCCL_ENV = Cause(
    "GD602",
    "nccl-env",
    "An NCCL variable harms this host, or does nothing",
    "warning; where a run ended by it: error; without harm here: note",
    "NCCL chooses transports, algorithms and channel counts from what it finds. A variable that was right on another "
    "host, an old "
    "version or for one experiment can shut out a network or a link here. NCCL ignores names and words it does not "
    "know "
    "without a message, so a misspelt variable is believed to work. Settings that a site may have made with intent "
    "(NVLS off, a "
    "topology file) are only named, so that nobody expects more than they allow.",
    "env | grep NCCL_; /etc/nccl.conf, ~/.nccl.conf, and the environment of running jobs (--job)",
    "Start once without the variable and compare; keep only what measurably helps.",
    (
        Threshold(
            "fewer channels than this starve NVLink",
            4,
            "channels",
            "our choice; measured on two H200: 347 GB/s with 24 channels, 289 with 16; NCCL itself takes 4 over shared memory",
            "2026-11",
        ),
    ),
)

# Nearest first. NCCL has no NODE: two host bridges of one NUMA node are PHB to it (graph/paths.cc).
_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_DIGITS = ("LOC", "PIX", "PXB", "PHB", "SYS")  # the numbers of NCCL 2.5 and older; 4 and above are SYS
NOTHING_LOST = "These GPUs have no peer to peer anyway, so nothing is lost."
NOT_KNOWN = "Whether these GPUs can do peer to peer is not known."
_OF_PATH = {"NVL": "NVL", "PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "PHB", "SYS": "SYS"}


class NcclEnv(BaseChecker):
    """The settings a job started here would obey, and those of jobs that run."""

    name: ClassVar[str] = "nccl-env"
    any_of = (Settings, Jobs, Launches)
    causes = (P2P_DISABLED_ENV, NCCL_ENV)
    wants = (Gpus, Pairs, NvLinks, Nics, Cpu, Trials, Bandwidth, Nccl, Software)

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        """What the settings do by their meaning; and by measurement, where a bandwidth run was varied."""
        trials = facts.get(Trials) or Trials(())
        told: set[str] = set()
        for said in self._by_meaning(facts):
            trial = None
            if isinstance(said, Finding):
                trial = next(
                    (t for t in trials if t.culprit and t.name and f"{t.name}={t.value}" in said.message), None
                )
            if trial is not None and trial.name is not None and isinstance(said, Finding):
                told.add(trial.name)
                said = _measured(said, trial)
            yield said
        settings = facts.get(Settings) or Settings(())
        for trial in trials:
            if trial.culprit and trial.name is not None and trial.name not in told:
                yield _by_trial(trial, settings.get(trial.name))

    def _by_meaning(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        here = facts.get(Settings) or Settings(())
        software, nccl = facts.get(Software), facts.get(Nccl)
        installed = software.versions.get("nccl") if software is not None else None
        around = Around(pairs=facts.get(Pairs), nics=facts.get(Nics), nvlink=_nvlink_seen(facts), one_host=on_one_host(nccl), release=release_of(nccl, installed))
        said: set[tuple[str, str]] = set()
        for whose, settings in (("", here), *((f" in the environment of {_who(p)}", _of_job(p, here)) for p in facts.get(Jobs) or ())):
            off = switch(settings)
            if off is not None and (off[0].name, off[0].value) not in said:
                said.add((off[0].name, off[0].value))
                yield from switched_off(*off, whose, facts)
            for rule in RULES:
                for advice in rule(settings, around):
                    if (advice.setting.name, advice.setting.value) not in said:
                        said.add((advice.setting.name, advice.setting.value))
                        yield advised(advice, whose)
        if facts.get(Launches) is not None:
            from gpudoctor.checkers.launch_env import by_command

            yield from by_command(facts, around, said)
            if facts.get(Settings) is None and facts.get(Jobs) is None:
                # What a command gives is added to an environment that was not shown.
                for cause in self.causes:
                    yield CannotTell(cause.slug, f"needs {facts.why_missing(Settings)}")


def _loss(trial: Trial) -> str:
    """`costs 91 %: 28.2 instead of 328 GB/s`, as measured here."""
    return f"costs {trial.loss_pct or 0:.0f} %: {trial.before_gbs or 0:.3g} instead of {trial.after_gbs or 0:.3g} GB/s"


def _gain(trial: Trial) -> Gain:
    return Gain(round(trial.before_gbs or 0.0, 1), round(trial.after_gbs or 0.0, 1), "GB/s")


def _measured(finding: Finding, trial: Trial) -> Finding:
    """A finding whose cost was measured on this host. A note that turns out to cost so much is none."""
    return replace(
        finding,
        severity=WARNING if finding.severity == NOTE else finding.severity,
        message=f"{finding.message} Measured here, it {_loss(trial)}.",
        evidence=(*finding.evidence, trial.at("after_gbs")),
        confidence=CERTAIN,
        cost=f"{trial.before_gbs or 0:.3g} instead of {trial.after_gbs or 0:.3g} GB/s, measured on this host with and without it",
        gain=_gain(trial),
    )


def _by_trial(trial: Trial, setting: Setting | None) -> Finding:
    """A setting that no rule speaks of, and without which the bandwidth is back."""
    p2p = trial.name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
    where = _place(setting, "") if setting is not None else f"{trial.name}={trial.value} ({trial.scope})"
    return Finding(
        P2P_DISABLED_ENV.slug if p2p else NCCL_ENV.slug,
        WARNING,
        "host",
        f"{where} {_loss(trial)}, measured with and without it.",
        (*((setting.at("value"),) if setting is not None else ()), trial.at("after_gbs")),
        CERTAIN,
        f"{trial.before_gbs or 0:.3g} instead of {trial.after_gbs or 0:.3g} GB/s",
        _removal(setting, "Measure again.", "gpudoctor bandwidth") if setting is not None else (),
        _gain(trial),
    )


def level_of(value: str) -> str | None:
    """The P2P level a value stands for; None for a word that NCCL ignores (names are case-sensitive)."""
    if value in _LEVELS:
        return value
    return _DIGITS[min(strtol(value), len(_DIGITS) - 1)] if value[:1].isdigit() else None


def _nvlink_seen(facts: FactView) -> bool:
    """Is an NVLink between GPUs of this host known to exist?"""
    links = facts.get(NvLinks)
    return any(p.path == "NVL" for p in facts.get(Pairs) or ()) or any(n.active for n in links or ())


def _who(process: JobProcess) -> str:
    return f"process {process.pid}" + (f" ({process.name})" if process.name else "")


def _of_job(process: JobProcess, here: Settings) -> Settings:
    """A job's own environment, above the config files of this host (inside a container they may be others)."""
    spot = process.at("environment")
    own = tuple(
        Setting(name=n, value=v, scope="environment", origin={"*": Evidence(spot.source, spot.where, f"{n}={v}")})
        for n, v in (process.environment or {}).items()
    )
    return Settings((*own, *(s for s in here if s.scope != "environment" and process.container is None)))


def switch(settings: Settings) -> tuple[Setting, str] | None:
    """The setting that limits peer to peer, and the level it leaves. NCCL_P2P_DISABLE goes first, but only as 1."""
    disable = settings.get("NCCL_P2P_DISABLE")
    if disable is not None and strtol(disable.value) == 1:
        return disable, "LOC"
    setting = settings.get("NCCL_P2P_LEVEL")
    level = level_of(setting.value) if setting is not None else None
    return (setting, level) if setting is not None and level is not None else None


def switched_off(setting: Setting, level: str, whose: str, facts: FactView) -> Iterator[Finding | CannotTell]:
    """What a setting that limits peer to peer costs here."""
    slug = P2P_DISABLED_ENV.slug
    gpus, cpu = facts.get(Gpus), facts.get(Cpu)
    pairs = [p for p in facts.get(Pairs) or () if p.path in _OF_PATH and not (p.pcie_only and level != "LOC")]
    if level == "LOC":
        cut = pairs
    else:
        amd = cpu is not None and cpu.entry.vendor == "AuthenticAMD" and gpus is not None and len(gpus) == 2
        cut = [p for p in pairs if _rank("PXB" if not amd else "SYS") >= _rank(_OF_PATH[p.path or ""]) > _rank(level)]
        if not cut:
            if not pairs and _rank(level) < _rank("PXB"):
                yield CannotTell(
                    slug,
                    f"{setting.name}={setting.value} cuts off pairs farther than {level}, but the pairs' paths are "
                    "not in the input",
                )
            return
    severity, why = _weight(cut, level, facts)
    if not cut and gpus is not None and gpus.complete and len(gpus) == 1:
        severity, why = NOTE, "There is one GPU here, so nothing is lost on this host."
    names = ", ".join(f"{p.a}-{p.b}" for p in cut[:6]) + (f" and {len(cut) - 6} more" if len(cut) > 6 else "")
    which = f" for the pair{'s' if len(cut) != 1 else ''} {names}" if cut else ""
    yield Finding(
        slug,
        severity,
        "host",
        f"{_place(setting, whose)} switches peer to peer off{which}: NCCL goes through host memory. {why}",
        (setting.at("value"), *(p.at("path") for p in cut[:1])),
        CERTAIN,
        "28 instead of 328 GB/s all-reduce, measured on two H200 with NVLink" if severity == ERROR else None,
        _removal(setting, "The next run uses peer to peer; measure it.", "gpudoctor bandwidth --gpus all")
        if severity != NOTE
        else (),
    )


def _rank(level: str) -> int:
    return _LEVELS.index(level)


def _weight(cut: list[Pair], level: str, facts: FactView) -> tuple[str, str]:
    gpus = facts.get(Gpus)
    linked = [p for p in cut if p.path == "NVL"]
    if linked or (level == "LOC" and _nvlink_seen(facts)):
        count = linked[0].nvlinks if linked else None
        return ERROR, f"The GPUs have NVLink{f' (NV{count})' if count else ''}, which is idle then."
    able = [pcie_peer(p, gpus) for p in cut]
    if not cut and gpus is not None and gpus.gpus:
        able = [False if can_peer(g) is False and not _may_link(g) else None for g in gpus]
    if able and all(a is False for a in able):
        return NOTE, NOTHING_LOST
    if any(able):
        return WARNING, "The driver would allow peer to peer."
    return WARNING, NOT_KNOWN


def _may_link(gpu: Gpu) -> bool:
    """Can this part have NVLink? True where the part is not known."""
    part = find(gpu.device_id, gpu.name)
    return part is None or part.nvlink


def _place(setting: Setting, whose: str) -> str:
    where = whose if setting.scope == "environment" else ""
    if setting.scope != "environment":
        where = f" in {setting.scope} ({setting.at('value').where})"
    return f"{setting.name}={setting.value}{where}"


def _removal(setting: Setting, step: str, verify: str | None) -> tuple[Step, ...]:
    if setting.scope == "environment":
        return (Step(f"Unset it where the job is started. {step}", f"unset {setting.name}", "reversible", verify),)
    file = setting.scope
    sudo = "" if file.startswith("~") else "sudo "
    return (
        Step("See the line and who wrote it", f"grep -n {setting.name} {file}; ls -l {file}"),
        Step(f"Comment it out. {step}", f"{sudo}sed -i 's/^ *{setting.name} *=/#&/' {file}", "reversible", verify),
    )


def advised(advice: Advice, whose: str) -> Finding:
    """What a rule says, as a finding."""
    setting = advice.setting
    steps = _removal(setting, advice.then, advice.verify) if advice.then is not None else ()
    return Finding(
        NCCL_ENV.slug,
        advice.severity,
        "host",
        f"{_place(setting, whose)}: {advice.words}",
        (setting.at("value"), *advice.evidence),
        advice.confidence,
        advice.cost,
        steps,
    )
