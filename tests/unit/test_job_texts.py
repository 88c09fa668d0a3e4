"""Excerpts of jobs' logs as people paste them: the line that is the cause, and none where nothing failed. Synthetic."""

from __future__ import annotations

from tests.unit.test_homes import found, report


def test_a_refused_call_is_the_cause_and_not_the_results_below_it() -> None:
    head = "node01:700:7{} [{}] {}\n"
    told = report(
        head.format(10, 1, "misc/argcheck.cc:39 NCCL WARN Send : invalid root 3 (root should be in the 0..1 range)")
        + head.format(11, 0, "NCCL INFO group.cc:106 -> 4")
        + head.format(10, 1, "NCCL INFO enqueue.cc:1450 -> 4")
    )
    (mismatch,) = found(told, "rank-mismatch").values()
    assert "invalid root 3" in mismatch.evidence[0].value


def test_a_plug_in_without_a_device_is_no_failure() -> None:
    """NCCL goes on with its own network; a plug-in that has a device and cannot open it ends the run."""
    line = "node01:700:710 [0] get_ofi_provider:312 NCCL WARN NET/OFI {}\n"
    socket = "node01:700:710 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\nNCCL version 2.4.6+cuda10.0\n"
    assert report(line.format("Could not find any optimal provider") + socket).exit_code == 0
    assert report(line.format("Couldn't open AV. RC: -22, ERROR: Invalid argument") + socket).exit_code == 1
