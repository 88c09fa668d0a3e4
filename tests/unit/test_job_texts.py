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


def start(rank: int, host: str, bus: str, dev: int = 0, pid: int | None = None, ip: str = "10.0.0.1", end: str = "START") -> str:
    head = f"{host}:{pid or 100 + rank}:{200 + rank} [{dev}] NCCL INFO "
    return f"{head}Bootstrap : Using eth0:{ip}<0>\n{head}comm 0x55{rank:02x} rank {rank} nranks 4 cudaDev {dev} nvmlDev {dev} busId {bus} commId 0xab - Init {end}\n"


def test_two_ranks_that_start_with_one_gpu() -> None:
    told = report("".join(start(r, "gpu07", bus) for r, bus in enumerate(("31000", "4b000", "31000", "4b000"))))
    said = {f.subject: f for r in told.results for f in r.findings if f.slug == "duplicate-gpu"}
    assert {s: f.confidence for s, f in said.items()} == {"gpu:0000:31:00.0": "likely", "gpu:0000:4b:00.0": "likely"}
    assert "Ranks 0, 2 on gpu07" in said["gpu:0000:31:00.0"].message


def test_ranks_with_equal_bus_ids_that_are_no_duplicates() -> None:
    both = (("gpu07", "10.0.0.1"), ("gpu08", "10.0.0.2"))
    assert not found(report("".join(start(r, host, "31000", ip=ip) for r, (host, ip) in enumerate(both))), "duplicate-gpu")
    # Two machines of one name; a name in place of the real one; an init that was completed.
    assert not found(report("".join(start(r, "gpu07", "31000", ip=ip) for r, (_, ip) in enumerate(both))), "duplicate-gpu")
    assert not found(report("".join(start(r, "localhost", "31000") for r in (0, 1))), "duplicate-gpu")
    assert not found(report("".join(start(r, "gpu07", "31000") + start(r, "gpu07", "31000", end="COMPLETE") for r in (0, 1))), "duplicate-gpu")


def test_nccl_of_2018_whose_lines_lack_its_name() -> None:
    """The connection that timed out is the cause; the one that was closed follows."""
    told = report(
        "NCCL version 2.2.13+cuda9.0\nnode1:18:61 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out\n"
        "node1:18:61 [0] INFO bootstrap.cu:28 -> 2 [Net]\nnode1:18:62 [0] include/socket.h:371 WARN Connection closed by remote peer\n"
    )
    (finding,) = found(told, "network-error").values()
    assert "timed out" in finding.evidence[0].value and not found(told, "peer-died")
