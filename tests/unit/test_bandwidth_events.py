"""The worker's events to facts."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.bandwidth.events import Heard
from gpudoctor.bandwidth.torch_engine import memory_needed
from gpudoctor.bandwidth.work import Measured, Target, Work
from gpudoctor.facts.bandwidth import BandwidthRun

GPUS = tuple(Target(index=i, uuid=f"GPU-{i}", bdf=f"0000:0{i}:00.0", name="H200") for i in (1, 3))


def work(**changes: Any) -> Work:
    return Work(**{"collective": "all_reduce", "targets": GPUS, "sizes": (8, 1 << 28, 1 << 30), "host_copies": True, "proof": True, **changes})


def row(rank: int, size: int, times: list[float], in_place: bool = False, task: str = "0.0", **more: Any) -> dict[str, Any]:
    base = {"event": "row", "rank": rank, "task": task, "size": size, "in_place": in_place, "wrong": 0, "times_us": times, "how": "calls", "why": None}
    return {**base, **more}


def heard(events: list[dict[str, Any]], last: str | None = None, hung: str | None = None, **changes: Any) -> Measured:
    one = Heard(work(**changes))
    for event in events:
        one._take(event, lambda what, share: None)
    one.hung = hung
    return one.result(b"", "PyTorch 2.11 (/usr/bin/python3)", 1.0, "", last)


FULL = [row(r, s, [s / 300e3, s / 330e3, s / 320e3]) for s in (1 << 28, 1 << 30) for r in (0, 1)]
END = [{"event": "task_done", "rank": r, "task": "0.0"} for r in (0, 1)] + [{"event": "exit", "rank": r, "code": 0, "killed": False} for r in (0, 1)]
LIBRARY = {"event": "library", "rank": 0, "nccl": "2.28.9", "direct": True}


def test_rows_are_the_median_of_the_repeats_and_the_mean_of_the_ranks() -> None:
    measured = heard([LIBRARY, *FULL, *END])
    run = measured.run
    assert run is not None and run.completed and run.nccl_version == "2.28.9"
    assert [m.bdf for m in run.members] == ["0000:01:00.0", "0000:03:00.0"]
    assert run.plateau_busbw_gbs == pytest.approx(320, rel=1e-3)
    assert measured.spread_pct == pytest.approx(100 * (1 / 300 - 1 / 330) * 320, rel=0.02)
    assert measured.engine == "PyTorch 2.11, NCCL 2.28.9 (/usr/bin/python3)"
    uneven = heard([row(0, 1 << 30, [1000.0]), row(1, 1 << 30, [3000.0]), *END]).run
    assert uneven is not None and uneven.rows[0].time_out_us == 2000.0


def test_a_size_that_one_rank_did_not_finish_is_no_row() -> None:
    run = heard([*FULL[:-1], *END]).run
    assert run is not None and [r.size for r in run.rows] == [1 << 28]


def test_too_little_memory_is_said_with_the_gpu_and_is_no_run() -> None:
    stop = {"event": "stop", "rank": 1, "reason": "x", "short": True, "free": 1 << 30, "total": 140 << 30, "need": 3 << 30}
    measured = heard([stop, {"event": "exit", "rank": 1, "code": 3, "killed": False}])
    assert measured.short_of_memory and measured.run is None
    assert measured.stopped == "GPU3 has 1.0 of 140.0 GiB free, 3.0 GiB are needed for buffers"


def test_peer_to_peer_that_mangles_data_is_wrong_results_and_names_the_pair() -> None:
    proof = {"event": "proof", "a": 0, "b": 1, "peer": True, "wrong_written": 17, "wrong_read": 0}
    error = {"event": "error", "rank": 0, "kind": "RuntimeError", "words": "peer to peer between ranks 0 and 1 mangles data"}
    run = heard([proof, error]).run
    assert run is not None and run.wrong is True and not run.completed
    assert "between GPU1 and GPU3 mangles data" in run.failures[0].text


def test_copies_and_the_plain_copy_between_gpus_become_facts() -> None:
    copy = {"event": "host_copy", "rank": 1, "to_device_gbs": 55.123, "from_device_gbs": 54.2, "speed_gts": 32.0, "width": 16}
    proof = {"event": "proof", "a": 0, "b": 1, "peer": True, "wrong_written": 0, "wrong_read": 0, "copy_gbs": 396.04}
    measured = heard([copy, proof, *FULL, *END])
    (one,) = measured.copies
    assert (one.gpu, one.bdf, one.to_device_gbs, one.speed_gts, one.width) == (3, "0000:03:00.0", 55.12, 32.0, 16)
    (rate,) = measured.pairs
    assert (rate.a, rate.b, rate.what, rate.gbs) == (1, 3, "copy write", 396.0)


def test_a_hang_tells_where_each_rank_was_and_nccls_last_word() -> None:
    stages = [{"event": "stage", "rank": 0, "stage": "connecting the ranks"}, {"event": "stage", "rank": 1, "stage": "opening the GPU"}]
    run = heard(stages, "node07:1:2 [0] NCCL INFO Bootstrap: Using eth0", "nothing moved for 30 s").run
    assert run is not None and run.failures[0].kind == "timeout"
    for words in ("rank 0: connecting the ranks", "rank 1: opening the GPU", "NCCL INFO Bootstrap: Using eth0"):
        assert words in run.failures[0].text


def test_a_killed_rank_is_the_cause_whatever_the_others_said_first() -> None:
    echo = {"event": "error", "rank": 0, "kind": "CommError", "words": "ncclAllReduce: remote process exited"}
    death = {"event": "exit", "rank": 1, "code": -9, "killed": False}
    for events in ([echo, death], [death, echo]):
        measured = heard(events)
        assert measured.run is not None
        (failure,) = measured.run.failures
        assert failure.text.startswith("rank 1 was ended by SIGKILL (out of memory?")
        assert any("remote process exited" in note for note in measured.notes)


def test_those_that_we_ended_ourselves_are_not_blamed() -> None:
    error = {"event": "error", "rank": 0, "kind": "CommError", "words": "ncclCommInitRank: invalid usage"}
    measured = heard([error, {"event": "exit", "rank": 0, "code": 1, "killed": False}, {"event": "exit", "rank": 1, "code": -9, "killed": True}])
    assert measured.run is not None and [f.kind for f in measured.run.failures] == ["nccl"]


def test_a_graph_that_could_not_be_captured_is_said_once() -> None:
    rows = [row(r, 8, [10.0], how="calls", why="RuntimeError: capture") for r in (0, 1)]
    assert len([n for n in heard([*rows, *END]).notes if "CUDA graphs could not be used" in n]) == 1
    assert heard([row(r, 8, [10.0], how="graph", why="") for r in (0, 1)] + END).notes == ()


def test_pairs_are_rates_of_their_own_and_no_run() -> None:
    events = [row(r, 1 << 28, [1000.0], task="0.0") for r in (0, 1)]
    measured = heard([*events, *END], pairs=(((0, 1),),), sizes=(1 << 28,))
    assert measured.run is None and [(p.a, p.b, p.what) for p in measured.pairs] == [(1, 3, "all_reduce busbw")]


def test_the_memory_asked_for_covers_buffers_and_checking() -> None:
    assert memory_needed((8, 1 << 30)) > 2 << 30
    assert memory_needed(()) < 1 << 30


def test_what_gpudoctor_measured_is_measured_again_by_gpudoctor() -> None:
    run = heard([*FULL, *END]).run
    assert run is not None
    assert run.again("8", "256M") == "gpudoctor bandwidth --engine torch --gpus 1,3 --sizes 8:256M:2"
    other = BandwidthRun(program="all_gather_perf", collective="all_gather", nranks=4)
    assert other.again("1M", "1G", 4, check=True) == "all_gather_perf -b 1M -e 1G -f 4 -c 1 -g 4"
