from collections.abc import Iterator

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.discover import Failure, Plugins
from gpudoctor.engine import run
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import NOTE, CannotTell, Cause, Evidence, Finding
from tests.support import HERE, store

CAUSE = Cause("GD990", "made-up", "title", "note", "why", "seen", "remedy")
GPUS = Gpus((Gpu(index=0, origin=HERE),))


def checker(says):
    class Made(BaseChecker):
        name = "made"
        needs = (Gpus,)
        causes = (CAUSE,)

        def check(self, facts: FactView) -> Iterator[object]:
            yield from says(facts)

    return Made()


def result(says, *facts):
    plugins = Plugins(checkers=(checker(says),), causes=(CAUSE,), failures=())
    return run(plugins, [store(*facts)])[0]


def found(_):
    yield Finding("made-up", NOTE, "host", "m", (Evidence("s", "w", "v"),))


def test_nothing_said_is_ok_only_after_a_look():
    assert result(lambda f: iter(()), GPUS).status == "ok"
    skipped = result(lambda f: iter(()))
    assert skipped.status == "skipped" and "the list of GPUs" in skipped.reason


def test_what_cannot_be_told_is_never_ok():
    got = result(lambda f: iter([CannotTell("made-up", "no root", "gpu:0")]), GPUS)
    assert got.status == "skipped" and got.reason == "gpu:0: no root"


def test_a_finding_wins_and_keeps_the_reason_of_what_was_not_judged():
    def both(facts):
        yield CannotTell("made-up", "no root", "gpu:1")
        yield from found(facts)

    got = result(both, GPUS)
    assert got.status == "found" and "no root" in got.reason


def test_broken_checkers_say_so_and_keep_what_they_found():
    def breaks(facts):
        yield from found(facts)
        raise RuntimeError("boom")

    got = result(breaks, GPUS)
    assert got.status == "found" and "boom" in got.reason
    for bad in (
        lambda f: 1 / 0,
        lambda f: f[Pairs],
        lambda f: iter(["text"]),
        lambda f: iter([Finding("other-slug", NOTE, "host", "m", (Evidence("s", "w", "v"),))]),
        lambda f: iter([Finding("made-up", NOTE, "host", "m", ())]),
        lambda f: iter([Finding("made-up", "fatal", "host", "m", (Evidence("s", "w", "v"),))]),
    ):
        assert result(bad, GPUS).status == "error"


def test_an_endless_checker_is_stopped():
    def endless(facts):
        while True:
            yield from found(facts)

    assert "more than" in result(endless, GPUS).reason


def test_a_plugin_that_did_not_load_is_a_broken_result():
    plugins = Plugins(checkers=(), causes=(), failures=(Failure(name="gone", reason="ImportError: x"),))
    got = run(plugins, [store(GPUS)])
    assert [(r.slug, r.status) for r in got] == [("gone", "error")]


def test_select_and_ignore():
    plugins = Plugins(checkers=(checker(found),), causes=(CAUSE,), failures=())
    assert run(plugins, [store(GPUS)], select=["GD990"])[0].status == "found"
    assert run(plugins, [store(GPUS)], select=["other"]) == ()
    assert run(plugins, [store(GPUS)], ignore=["made-up"]) == ()


def test_a_fact_on_request_leaves_no_check_unmade():
    from gpudoctor.facts.system import Jobs

    class Log(BaseChecker):
        name = "log"
        needs = (Jobs,)
        causes = (CAUSE,)

        def check(self, facts: FactView) -> Iterator[object]:
            yield from ()

    only_log = Plugins(checkers=(Log(),), causes=(CAUSE,), failures=())
    got = run(only_log, [store(GPUS)])[0]
    assert (got.status, got.offered) == ("skipped", False)
    both = Plugins(checkers=(Log(), checker(lambda f: iter(()))), causes=(CAUSE,), failures=())
    assert run(both, [store(GPUS)])[0].status == "ok"
    assert run(both, [store()])[0].offered
