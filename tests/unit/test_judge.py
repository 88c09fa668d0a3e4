"""When a look is a pass, a fault, or could not tell (the contract's exit status)."""

from collections.abc import Iterator

import pytest

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.discover import Plugins
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.outcomes import Outcome, Outcomes
from gpudoctor.facts.pci import PciTree
from gpudoctor.facts.store import FactStore, FactView
from gpudoctor.facts.topology import NvLinks, Pair, Pairs
from gpudoctor.ingest import Intake
from gpudoctor.judge import judge
from gpudoctor.model import ERROR, WARNING, Cause, Evidence, Finding, Report
from gpudoctor.report.text import verdict_line
from tests.support import HERE

CAUSE = Cause("XX001", "made-up", "title", "error", "why", "seen", "remedy")


class Says(BaseChecker):
    name = "says"
    any_of = (Gpus, Outcomes)
    causes = (CAUSE,)

    def __init__(self, *severities: str) -> None:
        self.severities = severities

    def check(self, facts: FactView) -> Iterator[Finding]:
        for severity in self.severities:
            yield Finding("made-up", severity, "host", "It is made up.", (Evidence("s", "w", "v"),))


def gpus(**fields: object) -> Gpus:
    usual = {"width": 16, "speed_gts": 32.0, **fields}
    return Gpus(tuple(Gpu(index=i, bdf=f"0000:0{i + 1}:00.0", origin=HERE, **usual) for i in range(2)))


PAIRS = Pairs((Pair(a=0, b=1, path="NVL", nvlinks=18, origin=HERE),))


def outcome(status: str, probe: str = "smi-q-x") -> Outcomes:
    return Outcomes((Outcome(probe=probe, argv=(), status=status, origin=HERE),))


class NeedsNvLinks(Says):
    needs = (NvLinks,)


def judged(*facts: object, checker: BaseChecker, recorded: bool = False, **options: object) -> Report:
    store = FactStore(None, facts, recorded=recorded)
    intake = Intake(stores=(store,), missing=(), unknown=(), recognised=1)
    return judge(intake, Plugins(checkers=(checker,), causes=(CAUSE,), failures=()), {}, **options)


def verdict(*facts: object, severities: tuple[str, ...] = (), recorded: bool = False, **options: object) -> tuple[str, int]:
    report = judged(*facts, checker=Says(*severities), recorded=recorded, **options)
    return report.verdict, report.exit_code


def test_a_whole_live_look_passes():
    assert verdict(gpus(), PAIRS) == ("pass", 0)
    assert verdict(gpus(), PAIRS, severities=(WARNING,)) == ("pass", 0)
    assert verdict(gpus(), PAIRS, severities=(WARNING,), fail_on="warning") == ("fail", 1)


@pytest.mark.parametrize(
    "facts",
    [
        (),  # no list of GPUs
        (Gpus(()), PAIRS),
        (gpus(),),  # no path of the pair
        (gpus(), Pairs((Pair(a=0, b=1, p2p_read="OK", origin=HERE),))),
        (gpus(width=None), PAIRS),
        (gpus(speed_gts=None), PAIRS),
        (gpus(), PAIRS, outcome("timeout")),  # nvidia-smi hangs, even where NVML answered
        (gpus(), PAIRS, outcome("stuck", "smi-nvlink-s")),
    ],
)
def test_what_a_live_look_needs_and_lacks_is_could_not_tell(facts):
    assert verdict(*facts) == ("unknown", 3)
    if facts:
        assert verdict(*facts, severities=(ERROR,)) == ("fail", 1)  # a fault found beats could-not-tell


def test_what_is_no_reason_for_doubt():
    assert verdict(gpus(width=None, c2c=True), PAIRS) == ("pass", 0)  # Grace reaches its GPU by NVLink-C2C
    assert verdict(gpus(), PAIRS, outcome("absent")) == ("pass", 0)  # judged from NVML
    assert verdict(Gpus((Gpu(index=0, width=16, speed_gts=32.0, origin=HERE),))) == ("pass", 0)  # one GPU has no pair


def test_an_excerpt_is_judged_by_what_it_has():
    assert verdict(gpus(width=None), recorded=True) == ("pass", 0)


def test_a_look_that_ran_out_of_time():
    assert verdict(gpus(), PAIRS, timed_out=True) == ("unknown", 3)


def test_no_checker_is_no_pass():
    intake = Intake(stores=(FactStore(None, (gpus(), PAIRS), recorded=False),), missing=(), unknown=(), recognised=1)
    empty = Plugins(checkers=(), causes=(), failures=())
    assert judge(intake, empty, {}).exit_code == 3
    assert judge(intake, None, {}).exit_code == 0  # facts only: nothing was to be judged


def test_nothing_recognised():
    intake = Intake(stores=(), missing=(), unknown=("x",), recognised=0)
    assert judge(intake, Plugins(checkers=(Says(),), causes=(CAUSE,), failures=()), {}).exit_code == 3


def test_a_host_without_gpus_says_so():
    store = FactStore(None, (outcome("absent"), PciTree((), complete=True)), recorded=False)
    report = judge(Intake(stores=(store,), missing=(), unknown=(), recognised=1), None, {})
    assert report.exit_code == 3 and [m.fact for m in report.missing if m.needed] == ["an NVIDIA GPU"]


def test_a_selected_check_that_could_not_be_made_is_no_pass():
    class Needy(Says):
        any_of = ()
        needs = (PciTree,)

    intake = Intake(stores=(FactStore(None, (gpus(), PAIRS), recorded=True),), missing=(), unknown=(), recognised=1)
    plugins = Plugins(checkers=(Needy(),), causes=(CAUSE,), failures=())
    assert judge(intake, plugins, {}, select=("made-up",)).exit_code == 3
    assert judge(intake, plugins, {}).exit_code == 0


@pytest.mark.parametrize(
    ("severities", "fail_on", "line"),
    [
        ((WARNING,), "error", "WARNING It is made up. 0 errors, 1 warning, 1 of 1 checks made."),
        ((WARNING,), "warning", "FAULT It is made up. 1 warning, which --fail-on warning makes a fault, 1 of 1 checks made."),
        ((ERROR, WARNING), "warning", "FAULT It is made up. 1 error, 1 warning, 1 of 1 checks made."),
    ],
)
def test_the_verdict_counts_what_made_it(severities, fail_on, line):
    assert verdict_line(judged(gpus(), PAIRS, checker=Says(*severities), fail_on=fail_on)) == line


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"), False),
        (("NVIDIA GeForce RTX 4090", "NVIDIA H200"), True),
        (("NVIDIA GeForce RTX 4090", "a card that no table has"), True),
        (("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"), True),  # with a bridge it has
        ((), True),
    ],
)
def test_links_that_a_card_cannot_have_are_not_asked_for(names, asked):
    cards = Gpus(tuple(Gpu(index=i, name=name, origin=HERE) for i, name in enumerate(names)))
    report = judged(cards, checker=NeedsNvLinks(), recorded=True)
    assert any(m.fact == NvLinks.label for m in report.missing) is asked
