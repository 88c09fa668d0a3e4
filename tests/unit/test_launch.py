"""Settings on the command line above an output: they count for that run and for no other. Synthetic."""

from __future__ import annotations

import pytest

from gpudoctor.model import Finding, Report
from tests.unit.test_homes import report

HEAD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  31 on     node7 device  0 [0x01] {part}
#  Rank  1 Group  0 Pid  31 on     node7 device  1 [0x41] {part}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def table(gbs: float, part: str = "NVIDIA A40") -> str:
    rows = "".join(
        f"{size:>12} {size // 4:>12}     float     sum      -1   {size / gbs / 1000:.1f}   {gbs:.2f}   {gbs:.2f}      0   {size / gbs / 1000:.1f}   {gbs:.2f}   {gbs:.2f}      0\n"
        for size in (1 << 28, 1 << 29, 1 << 30)
    )
    return HEAD.format(part=part) + rows + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4.1\n#\n"


FAILED = HEAD.format(part="NVIDIA A40") + "node7: Test NCCL failure common.cu:958 'unhandled cuda error / '\n"
MATRIX = "$ nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-15\nGPU1\tNV4\t X \t0-15\n\n"


def off(told: Report) -> list[Finding]:
    return [f for r in told.results for f in r.findings if f.slug == "p2p-disabled-env"]


@pytest.mark.parametrize(
    "command",
    [
        "NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "$ NCCL_DEBUG=WARN NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "root@node7:/opt/nccl-tests# NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "**NCCL_P2P_DISABLE=1** ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "mpirun -np 2 -x NCCL_P2P_DISABLE=1 -x NCCL_DEBUG=WARN ./build/all_reduce_perf -b 8 -e 4G -g 1",
        "mpiexec.hydra -n 2 -genv NCCL_P2P_DISABLE 1 ./build/all_reduce_perf -b 8 -e 4G -g 1",
        "docker run --rm --gpus all -e NCCL_P2P_DISABLE=1 nccl-tests ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "docker run --gpus all --env=NCCL_P2P_DISABLE=1 nccl-tests ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "srun -N1 -n2 --export=ALL,NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G",
        "$ env NCCL_P2P_DISABLE=1 ./run.sh",
        "$ NCCL_P2P_DISABLE=1 bash bench.sh 2>&1 | tee out.txt",
        "$ export NCCL_P2P_DISABLE=1; ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "node7$ echo\n$ export NCCL_P2P_DISABLE=1\n$ ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "mpirun -np 2 \\\n  -x NCCL_P2P_DISABLE=1 \\\n  -x NCCL_DEBUG=WARN \\\n  ./build/all_reduce_perf -b 8 -e 4G -g 1",
        "mpirun -np 2 -x NCCL_P2P_DISABLE=1 \\\n  --hostfile h -x PATH \\\n  --mca btl tcp,self \\\n  --bind-to none \\\n  ./build/all_reduce_perf -b 8 -e 4G -g 1",
        "docker run --rm -it \\\n  --gpus all \\\n  -e NCCL_P2P_DISABLE=1 \\\n  -v /data:/data \\\n  nccl-tests \\\n  all_reduce_perf -b 8 -e 4G -g 2",
        "NCCL_P2P_DISABLE=1 \\\n./build/all_reduce_perf -b 8 -e 4G -g 2",
    ],
)
def test_a_command_that_switches_peer_to_peer_off(command: str) -> None:
    (said,) = off(report(f"Slow here:\n```\n{command}\n{table(4.5)}```\n"))
    assert said.severity == "warning"
    assert "NCCL_P2P_DISABLE=1" in said.evidence[0].value
    assert "NCCL_P2P_DISABLE" in f"Slow here:\n```\n{command}".split("\n")[int(said.evidence[0].where.split()[1]) - 1]


@pytest.mark.parametrize(
    "words",
    [
        "I tried NCCL_P2P_DISABLE=1 and it did not help:",
        "With NCCL_P2P_DISABLE=1 ./build/all_reduce_perf runs through, but",
        "NCCL_P2P_DISABLE=1 works for me. Without it:",
        "Start the container with\n-e NCCL_P2P_DISABLE=1\nor without, like here\n./build/all_reduce_perf -b 8 -e 4G -g 2",
        "-e NCCL_P2P_DISABLE=1 makes it work, this is without:\n./build/all_reduce_perf -b 8 -e 4G -g 2",
        "Setting `NCCL_P2P_DISABLE=1` solves it.",
        "- NCCL_P2P_DISABLE=1 gives the same",
        "NCCL_P2P_DISABLE=0 ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "$ export NCCL_P2P_DISABLE=1\n$ unset NCCL_P2P_DISABLE\n$ ./build/all_reduce_perf -b 8 -e 4G -g 2",
        "NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n./build/all_reduce_perf -b 8 -e 4G -g 2",
    ],
)
def test_words_about_a_setting_are_no_run(words: str) -> None:
    assert off(report(f"{words}\n{table(4.5)}")) == []


def test_a_command_without_its_output_is_nothing_to_judge() -> None:
    told = report(f"{table(4.5)}\nNext I will run\n$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\nand report.\n")
    assert off(told) == []
    assert report("NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8\n").exit_code == 3


def test_a_plain_command_judges_no_environment() -> None:
    told = report("./build/all_reduce_perf -b 8 -e 4G -g 2\n" + table(4.5))
    assert {r.slug: r.status for r in told.results}["p2p-disabled-env"] == "skipped"


def test_the_run_without_it_is_compared() -> None:
    told = report(
        f"$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(4.5)}\n$ ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(40)}"
    )
    (said,) = off(told)
    assert said.gain is not None
    assert (said.gain.before, said.gain.after) == (4.5, 40.0)
    assert said.evidence[0].where == "line 1" and "(line 1)" in said.message


@pytest.mark.parametrize("swapped", [False, True])
def test_where_the_run_without_it_fails_it_is_a_way_around(swapped: bool) -> None:
    parts = [
        f"$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(4.5)}\n",
        f"$ ./build/all_reduce_perf -b 8 -e 4G -g 2\n{FAILED}\n",
    ]
    (said,) = off(report("".join(reversed(parts) if swapped else parts)))
    assert said.severity == "note"
    assert "way around" in said.message


def test_it_explains_its_own_run_and_not_the_other() -> None:
    """Two slow runs over NVLink: the setting of one is no excuse for the other."""
    slow = table(4.5)
    with_it = f"$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n{slow}\n"
    without = f"$ ./build/all_reduce_perf -b 8 -e 4G -g 2\n{slow}\n"
    alone = report(MATRIX + with_it)
    assert [d.finding.slug for d in alone.diagnoses if d.finding.severity == "error"] == ["p2p-disabled-env"]
    assert [f.slug for f in alone.diagnoses[0].explains] == ["busbw-low"]
    both = report(MATRIX + with_it + without)
    assert sorted(d.finding.slug for d in both.diagnoses if d.finding.severity == "error") == ["busbw-low", "p2p-disabled-env"]


INIT = (
    "node7:31:40 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
    "node7:31:40 [0] NCCL INFO comm 0x55aa rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xab - Init START\n"
    "node7:31:40 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
)


@pytest.mark.parametrize("command", ["$ NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 train.py", "NCCL_P2P_DISABLE=1 python3 train.py"])
def test_a_job_is_a_run_too(command: str) -> None:
    (said,) = off(report(f"{command}\nloading checkpoint\n{INIT}"))
    assert "the job (line 1)" in said.message


def test_what_nccl_says_of_itself_is_said_once() -> None:
    env = "node7:31:40 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
    (said,) = off(report(f"$ NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 train.py\n{env}{INIT}"))
    assert "line 2" in said.evidence[0].where


def test_other_settings_of_a_command_are_judged_by_their_rules() -> None:
    told = report(f"mpirun -np 2 -x NCCL_P2P_DISABLE=1 -x NCCL_SHM_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 1\n{table(3)}")
    said = [f for r in told.results for f in r.findings if f.slug == "nccl-env"]
    assert [f.severity for f in said] == ["warning"]
    assert "NCCL_SHM_DISABLE=1" in said[0].message


BROKEN = INIT.replace(":31:40", ":61:70").replace("0xab", "0xac") + "node7:61:70 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'\n"


@pytest.mark.parametrize("again", ["torchrun --nproc-per-node 2 train.py", "$ python3 train.py", "me@node7:~$ mpirun -np 2 ./train", "srun -n 2 python train.py"])
def test_a_job_that_another_command_starts_has_not_the_settings_of_the_first(again: str) -> None:
    told = report(f"With it:\n$ NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 train.py\n{INIT}\nWithout:\n{again}\n{BROKEN}")
    (said,) = off(told)
    assert said.severity == "note" and "way around" in said.message
    assert told.diagnoses[0].finding.slug == "p2p-unsupported"


@pytest.mark.parametrize(("part", "severity"), [("NVIDIA A40", "warning"), ("NVIDIA GeForce RTX 4090", "note"), ("NVIDIA H100 80GB HBM3", "error")])
def test_the_part_that_ran_says_what_is_lost(part: str, severity: str) -> None:
    (said,) = off(report(f"$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(4.5, part)}"))
    assert said.severity == severity


def test_where_the_run_without_it_is_no_faster_nothing_is_lost() -> None:
    told = report(f"$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(4.5)}\n$ ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(4.4)}")
    (said,) = off(told)
    assert said.severity == "note" and "costs nothing" in said.message


def test_a_measured_loss_counts_for_a_part_without_peer_to_peer_too() -> None:
    card = "NVIDIA GeForce RTX 4090"  # with a driver that lets it
    told = report(f"$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(4.5, card)}\n$ ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(20, card)}")
    (said,) = off(told)
    assert said.severity == "warning" and said.gain is not None


def test_a_post_that_is_cut_claims_no_failure() -> None:
    post = f"$ mpirun -np 2 -x NCCL_P2P_DISABLE=1 \\\n ./build/all_reduce_perf -b 8 -e 4G -g 1\n{table(4.5)}\n$ ./build/all_reduce_perf -b 8 -e 4G -g 2\n{table(40)}"
    for end in range(0, len(post), 97):
        assert all(f.severity == "warning" and f.evidence[0].where == "line 1" for f in off(report(post[:end]))), end


@pytest.mark.parametrize(("part", "severity"), [("NVIDIA A40", "warning"), ("NVIDIA H100 80GB HBM3", "error")])
def test_a_run_without_it_takes_nothing_from_what_the_part_says(part: str, severity: str) -> None:
    told = report(f"$ NCCL_P2P_DISABLE=1 ./all_reduce_perf -b 8 -e 1G -g 2\n{table(10.0, part)}\n$ ./all_reduce_perf -b 8 -e 1G -g 2\n{table(229.0, part)}")
    (finding,) = off(told)
    assert finding.severity == severity and "is not known" not in finding.message and "229" in finding.message
