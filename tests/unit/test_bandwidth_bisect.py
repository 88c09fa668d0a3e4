"""The search for what holds a run back, over an engine whose rates are a function of its environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gpudoctor.bandwidth.bisect import Bisect, telling
from gpudoctor.bandwidth.settings import KEPT, Site
from gpudoctor.bandwidth.work import Measured, Progress, Target, Work
from gpudoctor.checkers.nccl_env import NcclEnv
from gpudoctor.facts.bandwidth import BandwidthRow, BandwidthRun, Failure
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.facts.topology import Pair, Pairs
from gpudoctor.facts.trials import Trial, Trials
from tests.support import HERE, findings

Rate = Callable[[Mapping[str, str], Work], float]


class FakeEngine:
    """Not an engine: gives the rate that a function of the child's environment says. 0 is a failed run."""

    name = "fake"

    def __init__(self, environ: Mapping[str, str], rate: Rate) -> None:
        self.environ = environ
        self.rate = rate
        self.seen: list[dict[str, str]] = []

    def start(self, until: float) -> None: ...

    def close(self) -> None: ...

    def run(self, work: Work, progress: Progress) -> Measured:
        env = {k: v for k, v in self.environ.items() if k not in work.unset} | dict(work.set)
        self.seen.append(env)
        rate = self.rate(env, work)
        rows = tuple(BandwidthRow(size=s, busbw_in_gbs=rate) for s in work.sizes) if rate else ()
        failures = () if rate else (Failure(kind="nccl", text="unhandled system error"),)
        return Measured(run=BandwidthRun(collective="all_reduce", nranks=2, rows=rows, failures=failures, origin=HERE))


def search(
    environ: dict[str, str], rate: Rate, files: tuple[Setting, ...] = (), allow: bool = False, seconds: float = 600.0
) -> tuple[dict[str, Trial], FakeEngine]:
    engine = FakeEngine(environ, rate)
    site = Site(environ, Settings(files))
    work = Work(
        collective="all_reduce",
        targets=(Target(index=0), Target(index=1)),
        sizes=(8, 64 << 20, 256 << 20, 1 << 30),
        until=time.monotonic() + seconds,
        set=site.kept(),
    )
    trials = Bisect(engine, work, site, rate(environ, work), lambda what, share: None, allow).run()
    return {t.what: t for t in trials}, engine


def p2p(env: Mapping[str, str], work: Work) -> float:
    rate = 28.0 if env.get("NCCL_P2P_DISABLE") == "1" else 347.0
    rate = rate * 0.1 if env.get("NCCL_SHM_DISABLE") == "1" and rate < 100 else rate
    return rate * (0.5 if env.get("NCCL_MAX_NCHANNELS") not in (None, "", "32") else 1.0)


def culprits(trials: Mapping[str, Trial]) -> list[str | None]:
    return [t.name for t in trials.values() if t.culprit]


def test_the_one_variable_is_found_with_its_gain() -> None:
    trials, engine = search({"NCCL_P2P_DISABLE": "1"}, p2p)
    assert culprits(trials) == ["NCCL_P2P_DISABLE"] and len(engine.seen) == 1
    trial = trials["without NCCL_P2P_DISABLE=1"]
    assert (trial.before_gbs, trial.after_gbs) == (28.0, 347.0) and round(trial.loss_pct or 0) == 92


def test_among_several_the_harmless_ones_are_not_blamed() -> None:
    trials, _ = search({"NCCL_IB_HCA": "mlx5", "NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}, p2p)
    assert culprits(trials) == ["NCCL_P2P_DISABLE"]
    assert any(w.startswith("clean environment") for w in trials)


def test_two_that_act_together_are_both_named() -> None:
    trials, _ = search({"NCCL_P2P_DISABLE": "1", "NCCL_MAX_NCHANNELS": "2", "NCCL_IB_HCA": "mlx5"}, p2p)
    assert sorted(str(c) for c in culprits(trials)) == ["NCCL_MAX_NCHANNELS", "NCCL_P2P_DISABLE"]


def test_shared_memory_off_is_found() -> None:
    environ = {"NCCL_SHM_DISABLE": "1"}
    trials, _ = search(environ, lambda env, work: 3.0 if env.get("NCCL_SHM_DISABLE") == "1" else 20.0)
    assert culprits(trials) == ["NCCL_SHM_DISABLE"]


def test_a_line_of_a_file_is_found() -> None:
    file = Setting(name="NCCL_MAX_NCHANNELS", value="2", scope="/etc/nccl.conf", origin=HERE)

    def with_file(env: Mapping[str, str], work: Work) -> float:
        return p2p({"NCCL_MAX_NCHANNELS": "2", **env}, work)

    trials, _ = search({}, with_file, (file,))
    assert culprits(trials) == ["NCCL_MAX_NCHANNELS"]


def test_peer_to_peer_that_a_file_switched_off_is_left_alone_unless_allowed() -> None:
    file = Setting(name="NCCL_P2P_DISABLE", value="1", scope="/etc/nccl.conf", origin=HERE)

    def with_file(env: Mapping[str, str], work: Work) -> float:
        return p2p({"NCCL_P2P_DISABLE": "1", **env}, work)

    trials, engine = search({}, with_file, (file,))
    assert culprits(trials) == []
    assert all(env.get("NCCL_P2P_DISABLE") != "0" and "NCCL_P2P_LEVEL" not in env for env in engine.seen)
    assert "--allow-p2p" in (trials["without NCCL_P2P_DISABLE=1"].why_not or "")
    trials, _ = search({}, with_file, (file,), allow=True)
    assert culprits(trials) == ["NCCL_P2P_DISABLE"]


def test_multicast_stays_off_in_every_run_of_the_search() -> None:
    off = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
    environ = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_HCA": "mlx5", **off}
    _, found = search(environ, p2p)
    _, not_found = search(environ, lambda env, work: 28.0)  # every variation is tried
    assert len(not_found.seen) > 3
    for env in (*found.seen, *not_found.seen):
        assert {n: env.get(n) for n in KEPT} == off


def test_without_a_culprit_other_ways_are_tried_and_what_helps_is_said() -> None:
    def far(env: Mapping[str, str], work: Work) -> float:
        return 20.0 if env.get("NCCL_P2P_LEVEL") == "SYS" else 8.0

    trials, _ = search({}, far)
    assert culprits(trials) == []
    assert set(trials) == {"peer to peer off", "peer to peer at every distance", "shared memory off", "every CPU of this host allowed"}
    (said,) = telling(trials.values())
    assert said.startswith("peer to peer at every distance: 20 instead of 8 GB/s") and "NCCL_P2P_LEVEL=SYS" in said


def test_the_affinity_of_the_process_is_one_of_the_ways() -> None:
    trials, _ = search({}, lambda env, work: 30.0 if work.all_cpus else 10.0)
    assert trials["every CPU of this host allowed"].after_gbs == 30.0 and "affinity" in telling(trials.values())[0]


def test_a_small_change_is_no_cause() -> None:
    trials, _ = search({"NCCL_MAX_NCHANNELS": "32"}, lambda env, work: 105.0 if "NCCL_MAX_NCHANNELS" not in env else 100.0)
    assert culprits(trials) == [] and telling(trials.values()) == ()


def test_a_variation_that_fails_says_why() -> None:
    trials, _ = search({"NCCL_IB_HCA": "x"}, lambda env, work: 28.0 if "NCCL_IB_HCA" in env else 0.0)
    assert trials["without NCCL_IB_HCA=x"].why_not == "unhandled system error" and culprits(trials) == []


def test_without_time_nothing_is_run() -> None:
    trials, engine = search({"NCCL_P2P_DISABLE": "1"}, p2p, seconds=0.0)
    assert engine.seen == [] and all("no time" in (t.why_not or "") for t in trials.values())


def trial(name: str, value: str) -> Trials:
    return Trials((Trial(what="x", before_gbs=28.0, after_gbs=328.0, name=name, value=value, scope="environment", culprit=True, origin=HERE),))


def test_the_finding_of_the_setting_carries_cost_and_gain() -> None:
    settings = Settings((Setting(name="NCCL_P2P_DISABLE", value="1", scope="environment", origin=HERE),))
    said = findings(NcclEnv(), settings, Pairs((Pair(a=0, b=1, path="NVL", nvlinks=18, origin=HERE),)), trial("NCCL_P2P_DISABLE", "1"))
    found = said["p2p-disabled-env", "host"]
    assert found.severity == "error" and "costs 91 %: 28 instead of 328 GB/s" in found.message
    assert found.gain is not None and (found.gain.before, found.gain.after) == (28.0, 328.0)


def test_a_setting_that_no_rule_knows_is_named_by_what_was_measured() -> None:
    settings = Settings((Setting(name="NCCL_P2P_NVL_CHUNKSIZE", value="4096", scope="environment", origin=HERE),))
    said = findings(NcclEnv(), settings, trial("NCCL_P2P_NVL_CHUNKSIZE", "4096"))
    assert "NCCL_P2P_NVL_CHUNKSIZE=4096 costs 91 %" in said["nccl-env", "host"].message
    assert findings(NcclEnv(), settings) == {}
