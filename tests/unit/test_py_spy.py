"""`py-spy dump`, as the reports ask for it: where a rank's code stands. Synthetic, in the shape of py-spy 0.4."""

from __future__ import annotations

import pytest

from gpudoctor.facts.hang import Stacks
from tests.support import parse
from tests.unit.test_homes import P2P, log, report

HEAD = "Process {pid}: python train.py --epochs 3\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
LOADS = HEAD + """Thread {pid} (active): "MainThread"
    read (data/shards.py:88)
    next_batch (data/loader.py:41)
    main (train.py:120)
    <module> (train.py:140)
Thread 3600 (idle): "Thread-1"
    wait (threading.py:327)
"""
WAITS = HEAD + """Thread {pid} (idle): "MainThread"
    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252)
    wrapper (/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83)
    step (train.py:97)
    <module> (train.py:140)
"""
MADE = "waits for others, or for its GPU, in a call made in step at train.py:97"


@pytest.mark.parametrize(("text", "words"), [(LOADS, "stands in read at data/shards.py:88"), (WAITS, MADE), (WAITS.replace("/venv/lib/python3.11/site-packages/", ""), MADE)])
def test_where_it_stands_is_said_and_nobody_blamed(text: str, words: str) -> None:
    told = report(text.format(pid=3593))
    (note,) = [d.finding for d in told.diagnoses]
    assert told.exit_code == 0 and (note.severity, note.subject) == ("note", "host") and f"Process 3593 {words}" in note.message


def test_a_rank_by_the_process_number_of_its_log() -> None:
    told = report(log({"node07": P2P}) + "\n" + LOADS.format(pid=101))
    assert any(d.finding.subject == "rank:1" and "Rank 1, process 101, stands in read" in d.finding.message for d in told.diagnoses)


def test_cut_anywhere_no_frame_is_another() -> None:
    whole = [str(f) for s in parse("py-spy", LOADS.format(pid=3593)) if isinstance(s, Stacks) for f in s.stacks[0].frames]
    assert whole == ["read at data/shards.py:88", "next_batch at data/loader.py:41", "main at train.py:120", "<module> at train.py:140"]
    text = LOADS.format(pid=3593)
    for at in range(len(text)):
        try:
            made = parse("py-spy", text[:at])
        except Exception as error:
            assert type(error).__name__ == "Unparsable"
            continue
        for stacks in made:
            if isinstance(stacks, Stacks):
                assert [str(f) for f in stacks.stacks[0].frames] == whole[: len(stacks.stacks[0].frames)]


@pytest.mark.parametrize("text", ["Thread 3593 is \"MainThread\" of the pool\n    main (train.py:1)\n", "Process 12: done\n"])
def test_what_is_no_stack(text: str) -> None:
    assert not report(text).diagnoses
