"""A job's log beside the outputs of several of its hosts: each rank is judged by the machine that it ran on. Synthetic."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpudoctor.discover import load
from gpudoctor.ingest import take
from gpudoctor.judge import judge
from gpudoctor.model import Finding, Report
from gpudoctor.read.source import Document, open_path

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "hosts"

BUSES = ("1b", "43", "52", "61")


def host(name: str | None, path: str = "NV18", buses: tuple[str, ...] = BUSES, cuda: str = "13.0", gen: int = 5, width: int = 16, part: str = "NVIDIA H100 80GB HBM3") -> str:
    """What somebody pastes of one host: the list of GPUs, the matrix, the table's head."""
    prompt = f"root@{name}:~# " if name is not None else "$ "
    many = range(len(buses))
    lines = [f"{prompt}nvidia-smi --query-gpu=index,pci.bus_id,name,pcie.link.gen.current,pcie.link.width.current,pcie.link.gen.max,pcie.link.width.max --format=csv"]
    lines += ["index, pci.bus_id, name, pcie.link.gen.current, pcie.link.width.current, pcie.link.gen.max, pcie.link.width.max"]
    lines += [f"{i}, 00000000:{buses[i].upper()}:00.0, {part}, {gen}, {width}, {gen}, {width}" for i in many]
    lines += [f"{prompt}nvidia-smi topo -m", "\t" + "\t".join(f"GPU{i}" for i in many) + "\tCPU Affinity"]
    lines += [f"GPU{a}\t" + "\t".join(" X " if a == b else path for b in many) + "\t0-31" for a in many]
    lines += [f"{prompt}nvidia-smi -q -x", '<?xml version="1.0" ?>', "<nvidia_smi_log>", "<driver_version>580.65.06</driver_version>", f"<cuda_version>{cuda}</cuda_version>"]
    lines += [f'<gpu id="00000000:{bus.upper()}:00.0"><minor_number>{i}</minor_number></gpu>' for i, bus in enumerate(buses)]
    lines += ["</nvidia_smi_log>"]
    return "\n".join(lines) + "\n"


def log(hosts: dict[str, str], env: dict[str, str] | None = None, buses: dict[str, tuple[str, ...]] | None = None, cuda: dict[str, int] | None = None, extra: tuple[str, ...] = ()) -> str:
    """Four ranks a host; `hosts` says how those of each talk: `P2P/CUMEM`, `SHM/direct/direct`."""
    lines, ranks = [], 4 * len(hosts)
    for place, (name, via) in enumerate(hosts.items()):
        for local in range(4):
            rank = 4 * place + local
            head = f"{name}:{100 + rank}:{200 + rank} [{local}] NCCL INFO "
            bus = (buses or {}).get(name, BUSES)[local]
            comm = f"comm 0x55{rank:02x} rank {rank}"
            lines += [f"{head}cudaDriverVersion {(cuda or {}).get(name, 13000)}", f"{head}NCCL version 2.28.9+cuda13.0", f"{head}Bootstrap: Using eth0:10.0.0.{place + 1}<0>"]
            lines += [f"{head}{n} set by environment to {v}." for n, v in (env or {}).items()]
            lines += [f"{head}ncclCommInitRank {comm} nranks {ranks} cudaDev {local} nvmlDev {local} busId {bus}000 commId 0xab - Init START"]
            lines += [f"{head}{comm} nRanks {ranks} nNodes {len(hosts)} localRanks 4 localRank {local} MNNVL 0"]
            if local < 3:
                lines += [f"{head}Channel 00/0 : {rank}[{local}] -> {rank + 1}[{local + 1}] via {via}"]
            else:
                lines += [f"{head}Channel 00/0 : {rank}[3] -> {(rank + 1) % ranks}[0] [send] via NET/IB/0/GDRDMA"]
            lines += [f"{head}ncclCommInitRank {comm} nranks {ranks} cudaDev {local} nvmlDev {local} busId {bus}000 commId 0xab - Init COMPLETE"]
    return "\n".join((*lines, *extra)) + "\n"


def report(*texts: str) -> Report:
    intake = take((), [Document(name=f"f{n}.txt", chunks=lambda t=t: iter([t.encode()])) for n, t in enumerate(texts)])
    return judge(intake, load(), {})


def found(told: Report, slug: str) -> dict[str | None, Finding]:
    return {f.host: f for r in told.results if r.slug == slug for f in r.findings}


def reason(told: Report, slug: str) -> str:
    return next(r.reason or "" for r in told.results if r.slug == slug)


def missing(told: Report) -> str:
    return "\n".join(f"{m.fact}: {m.reason}" for m in told.missing if "NCCL's log names" in m.fact)


SHM, P2P = "SHM/direct/direct", "P2P/CUMEM"


def test_nvlink_of_a_ranks_own_host_that_it_does_not_use() -> None:
    told = report(host("node07"), host("node08"), log({"node07": P2P, "node08": SHM}))
    unused = found(told, "p2p-not-used")
    assert list(unused) == ["node08"] and unused["node08"].severity == "error"
    assert "4-5, 5-6, 6-7" in unused["node08"].message and missing(told) == ""


def test_the_host_without_nvlink_is_judged_by_itself() -> None:
    """The same bus ids on both: the name tells. Cards without peer to peer go through memory as they must."""
    plain = host("node08", "PHB", part="NVIDIA GeForce RTX 4090")
    told = report(host("node07"), plain, log({"node07": P2P, "node08": SHM}))
    assert [(h, f.severity) for h, f in found(told, "p2p-not-used").items()] == [("node08", "note")]
    both = found(report(host("node07"), plain, log({"node07": SHM, "node08": SHM})), "p2p-not-used")
    assert {h: f.severity for h, f in both.items()} == {"node07": "error", "node08": "note"}


def test_healthy_hosts_give_nothing() -> None:
    told = report(host("node07"), host("node08"), log({"node07": P2P, "node08": P2P}))
    assert not found(told, "p2p-not-used") and missing(told) == "" and told.exit_code == 0


def test_a_host_that_the_input_has_nothing_of_is_open_for_its_ranks_only() -> None:
    """node09's bus ids are those of node08, which is another machine."""
    told = report(host("node07"), host("node08"), log({"node07": SHM, "node09": SHM}))
    assert list(found(told, "p2p-not-used")) == ["node07"]
    assert "4-5" in reason(told, "p2p-not-used") and "nothing in the input is of this host" in missing(told)
    one = report(host("node07"), log({"node07": P2P, "node08": SHM}))  # a single named host is not all hosts of the log
    assert not found(one, "p2p-not-used") and "4-5" in reason(one, "p2p-not-used")


def test_a_snapshots_stand_in_is_told_by_bus_ids() -> None:
    other = ("0a", "0b", "8a", "8b")
    told = report(host("host-aaaaaa"), host("host-bbbbbb", buses=other), log({"node07": P2P, "node08": SHM}, buses={"node08": other}))
    assert list(found(told, "p2p-not-used")) == ["host-bbbbbb"] and missing(told) == ""
    assert "In the log this host is node08" in found(told, "p2p-not-used")["host-bbbbbb"].message


def test_a_snapshots_stand_in_is_told_by_the_driver() -> None:
    told = report(host("host-aaaaaa", cuda="12.4"), host("host-bbbbbb"), log({"node07": SHM, "node08": P2P}, cuda={"node07": 12040}))
    assert list(found(told, "p2p-not-used")) == ["host-aaaaaa"] and missing(told) == ""


def test_two_hosts_that_look_alike_are_not_told_apart() -> None:
    told = report(host("host-aaaaaa"), host("host-bbbbbb", "PHB"), log({"node07": P2P, "node08": SHM}))
    assert not found(told, "p2p-not-used") and "4-5" in reason(told, "p2p-not-used")
    assert "node07, node08" in missing(told) and "manifest.json" in missing(told)
    # Where one of them is named, the other is what remains.
    half = report(host("node07"), host("host-bbbbbb"), log({"node07": P2P, "node08": SHM}))
    assert list(found(half, "p2p-not-used")) == ["host-bbbbbb"]


def test_an_output_without_a_name_is_not_every_host_of_the_log() -> None:
    told = report(host(None), log({"node07": P2P, "node08": SHM}))
    assert not found(told, "p2p-not-used") and "node07, node08" in missing(told)
    one = report(host(None), log({"node08": SHM}))
    assert [f.severity for f in found(one, "p2p-not-used").values()] == ["error"] and missing(one) == ""


def test_containers_of_one_machine_are_one_host() -> None:
    """Two names, one address, different GPUs."""
    text = log({"c1": SHM, "c2": SHM}, buses={"c2": ("71", "82", "93", "a4")}).replace("10.0.0.2<0>", "10.0.0.1<0>")
    for local in range(4):
        text = text.replace(f"cudaDev {local} nvmlDev {local} busId {('71', '82', '93', 'a4')[local]}000", f"cudaDev {local} nvmlDev {local + 4} busId {('71', '82', '93', 'a4')[local]}000")
    told = report(host("host-aaaaaa", buses=(*BUSES, "71", "82", "93", "a4")), text)
    assert missing(told) == "" and [f.severity for f in found(told, "p2p-not-used").values()] == ["error"]


def test_a_switch_is_weighed_by_the_links_of_each_host() -> None:
    told = report(host("node07"), host("node08", "PHB", part="NVIDIA GeForce RTX 4090"), log({"node07": SHM, "node08": SHM}, env={"NCCL_P2P_DISABLE": "1"}))
    assert {h: f.severity for h, f in found(told, "p2p-disabled-env").items()} == {"node07": "error", "node08": "note"}


def test_gpus_that_took_no_part_are_those_of_the_rank_s_host() -> None:
    eight = (*BUSES, "9d", "c3", "d1", "df")
    told = report(host("node07"), host("node08", buses=eight), log({"node07": P2P, "node08": P2P}))
    unused = found(told, "gpu-not-visible")
    assert list(unused) == ["node08"] and "GPU4" in unused["node08"].message
    # Half the log: whether other ranks used them is not known.
    half = "".join(line for line in log({"node07": P2P, "node08": P2P}).splitlines(True) if not line.startswith("node08:107"))
    assert not found(report(host("node07"), host("node08", buses=eight), half), "gpu-not-visible")


def test_the_drivers_refusal_is_of_the_host_that_prints_it() -> None:
    refusal = ("node08:104:204 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",)
    told = report(host("node07"), host("node08", "PHB", part="NVIDIA GeForce RTX 4090"), log({"node07": P2P, "node08": SHM}, extra=refusal))
    assert [(h, f.subject, f.severity) for h, f in found(told, "p2p-unsupported").items()] == [("node08", "pair:0-1", "note")]


def test_nccls_view_of_a_link_is_held_against_the_ranks_own_host() -> None:
    dump = tuple(
        f"{name}:{100 + 4 * n}:{200 + 4 * n} [0] NCCL INFO {words}"
        for n, name in enumerate(("node07", "node08"))
        for words in ("=== System : maxBw 48.0 totalBw 48.0 ===", "CPU/0-0 (1/1/2)", "+ PCI[48.0] - GPU/0-1b000 (0)")
    )
    told = report(host("node07"), host("node08", width=8), log({"node07": P2P, "node08": P2P}, extra=dump))
    assert [(h, f.subject) for h, f in found(told, "pcie-width").items() if "NCCL assumes" in f.message] == [("node08", "gpu:0000:1b:00.0")]


def test_a_folder_with_snapshots_of_several_hosts_and_the_logs_of_their_ranks(tmp_path: Path) -> None:
    """Each snapshot is one host, whatever lies beside it; another tool's manifest.json is a file like others."""
    for name, fixture in (("node07", "h100x8-nvswitch-healthy"), ("node08", "l40sx2-acs-redirect")):
        folder = tmp_path / "snapshots" / name
        shutil.copytree(FIXTURES / fixture, folder, ignore=shutil.ignore_patterns("golden", "expect.json"))
        manifest = folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"host": "node07"', f'"host": "{name}"'))
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"name": "a page", "icons": []}')
    (tmp_path / "web" / "dmesg.txt").write_text("[ 12.3] NVRM: Xid (PCI:0000:13:00): 79, pid=1, GPU has fallen off the bus.\n")
    for line in log({"node07": SHM, "node09": SHM}, buses={"node07": ("13", "2b", "43", "5b")}).splitlines():
        with (tmp_path / f"{line.split(' ')[0].replace(':', '-')}.log").open("a") as stream:
            stream.write(line + "\n")
    intake = take((), list(open_path(str(tmp_path))))
    assert {s.host for s in intake.stores} == {"node07", "node08", None}
    told = judge(intake, load(), {})
    assert [(h, f.severity) for h, f in found(told, "p2p-not-used").items()] == [("node07", "error")]
    assert "node09" in missing(told) and found(told, "xid")
