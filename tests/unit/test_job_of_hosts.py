"""A job's log beside the outputs of some of its hosts: whose fault explains what."""

from __future__ import annotations

from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.model import Diagnosis
from gpudoctor.read.source import Document

XID = "root@{host}:~# dmesg\n[ 12.3] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"
HEALTHY = "root@{host}:~# nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV12\t X \t0-7\n"


def log(failing: str, *hosts: str, words: str = "transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<5> with error 12, opcode 0, len 0, vendor err 129") -> str:
    lines = []
    for rank, host in enumerate(hosts):
        head = f"{host}:{rank + 10}:{rank + 10} [0] "
        lines.append(f"{head}NCCL INFO ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks {len(hosts)} cudaDev 0 nvmlDev 0 busId 41000 commId 0xab - Init COMPLETE")
        if host == failing:
            lines.append(head + words)
    return "\n".join(lines) + "\n"


def diagnoses(*texts: str) -> dict[str, Diagnosis]:
    intake = take((), [Document(name=f"f{n}.txt", chunks=lambda t=t: iter([t.encode()])) for n, t in enumerate(texts)])
    return {d.finding.slug: d for d in judge(intake, load(), {}).diagnoses if d.finding.severity != "note"}


def explained(found: dict[str, Diagnosis]) -> set[str]:
    return {e.slug for d in found.values() for e in d.explains}


def test_a_hosts_fault_is_not_the_cause_of_another_hosts_network_error() -> None:
    found = diagnoses(XID.format(host="a"), log("b", "a", "b"))
    assert "network-error" in found and found["network-error"].finding.host == "b"
    assert "network-error" not in explained(found)


def test_a_hosts_fault_explains_its_own_error() -> None:
    assert "network-error" in explained(diagnoses(XID.format(host="a"), log("a", "a", "b")))
    # With outputs of both hosts the log belongs to neither, and the fault is still found at home.
    both = diagnoses(HEALTHY.format(host="a"), XID.format(host="b.cluster.local"), log("b", "a", "b"))
    assert "network-error" in explained(both)
    other = diagnoses(HEALTHY.format(host="b"), XID.format(host="a"), log("b", "a", "b"))
    assert "network-error" in other and other["network-error"].finding.host == "b"


def test_the_log_of_one_host_and_inputs_without_names_are_of_one_host() -> None:
    assert "network-error" in explained(diagnoses(XID.format(host="a"), log("node7", "node7")))
    assert "network-error" in explained(diagnoses(XID.partition("\n")[2], log("b", "a", "b")))
