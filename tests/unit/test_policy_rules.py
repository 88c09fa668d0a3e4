"""Every rule of a policy: met, broken, and not known; whose GPUs are judged; what findings count for; what is learned."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.facts.bandwidth import Bandwidth, BandwidthRow, BandwidthRun, HostCopies, HostCopy
from gpudoctor.facts.gpu import Driver, DriverEntry, Gpu, Gpus, LinkSample
from gpudoctor.facts.kernel import KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Grant, GrantEntry, Setting, Settings
from gpudoctor.facts.topology import Nic, NicPath, Nics, NvLink, NvLinks, Pair, Pairs
from gpudoctor.model import ERROR, FOUND, NOTE, OK, WARNING, CheckResult, Evidence, Finding
from gpudoctor.policy import rules
from gpudoctor.policy.allocation import Allocation, allocation
from gpudoctor.policy.learn import learn
from gpudoctor.policy.load import load
from gpudoctor.policy.outcome import BROKEN, MET, UNKNOWN
from gpudoctor.policy.weigh import weigh
from gpudoctor.record import replace
from tests.support import HERE

TODAY = "2027-01-15"


def gpu(index: int, **values: Any) -> Gpu:
    base: dict[str, Any] = {
        "bdf": f"0000:4{index}:00.0", "uuid": f"GPU-{index}", "name": "NVIDIA H200", "width": 16, "max_width": 16, "speed_gts": 32.0,
        "max_speed_gts": 32.0, "numa_node": 0,
    }  # fmt: skip
    return Gpu(index=index, origin=HERE, **{**base, **values})


def pairs(count: int = 2, **values: Any) -> Pairs:
    base: dict[str, Any] = {"path": "NVL", "nvlinks": 18}
    return Pairs(
        tuple(Pair(a=a, b=b, origin=HERE, **{**base, **values}) for a in range(count) for b in range(a + 1, count))
    )


def judged(
    text: str, *facts: Any, given: Allocation | None = None, measuring: bool = True
) -> dict[tuple[str, str], Any]:
    policy = load(text, "p.toml", ("acs", "aspm", "nvlink-down"))
    store = FactStore("node07", facts, recorded=False)
    return {(o.rule, o.subject): o for o in rules.judge(policy, store, given or Allocation(), measuring)}


def statuses(text: str, *facts: Any, **options: Any) -> list[str]:
    return [o.status for o in judged(text, *facts, **options).values()]


TWO = Gpus((gpu(0), gpu(1)))


@pytest.mark.parametrize(
    ("text", "fact", "expected"),
    [
        ("[gpus]\ncount = 2", TWO, MET),
        ("[gpus]\ncount = 4", TWO, BROKEN),
        ("[gpus]\ncount = 1", TWO, BROKEN),
        ("[gpus]\ncount = 4", Gpus((gpu(0),), complete=False), UNKNOWN),
        ("[gpus]\ncount = 2", KernelLog(()), UNKNOWN),
        ("[gpus]\nmodel = 'H200'", Gpus((gpu(0),)), MET),
        ("[gpus]\nmodel = ['H100', 'h200']", Gpus((gpu(0),)), MET),
        ("[gpus]\nmodel = 'H100'", Gpus((gpu(0),)), BROKEN),
        ("[gpus]\nmodel = 'A100-SXM4-40GB'", Gpus((gpu(0, name="NVIDIA A100-SXM4-80GB"),)), BROKEN),
        ("[gpus]\nmodel = 'H200'", Gpus((gpu(0, name="NVIDIA H200 NVL"),)), MET),
        ("[gpus]\nmodel = 'H200'", Gpus((gpu(0, name=None),)), UNKNOWN),
        ("[pcie]\nwidth = 16", Gpus((gpu(0),)), MET),
        ("[pcie]\nwidth = 16", Gpus((gpu(0, width=8),)), BROKEN),
        ("[pcie]\nwidth = 16", Gpus((gpu(0, width=None),)), UNKNOWN),
        ("[pcie]\ncapable_generation = 5", Gpus((gpu(0, speed_gts=2.5),)), MET),
        ("[pcie]\ncapable_generation = 5", Gpus((gpu(0, max_speed_gts=16.0),)), BROKEN),
        ("[pcie]\ncapable_generation = 5", Gpus((gpu(0, max_speed_gts=None),)), UNKNOWN),
        ("[pcie]\nwidth = 16", KernelLog(()), UNKNOWN),
        ("[numa]\nof_gpus = [0]", Gpus((gpu(0),)), MET),
        ("[numa]\nof_gpus = [1]", Gpus((gpu(0),)), BROKEN),
        ("[numa]\nof_gpus = [1]", Gpus((gpu(0, numa_node=None),)), UNKNOWN),
        ("[numa]\nknown = true", Gpus((gpu(0),)), MET),
        ("[numa]\nknown = true", Gpus((gpu(0, numa_node=None),)), UNKNOWN),
        ("[driver]\nmin = '550.54.15'", Driver(DriverEntry(version="550.90.07", origin=HERE)), MET),
        ("[driver]\nmin = '550.54.15'", Driver(DriverEntry(version="550.54.14", origin=HERE)), BROKEN),
        ("[driver]\nmin = '550'", Driver(DriverEntry(version="1000.1", origin=HERE)), MET),
        ("[driver]\nmin = '550.54.0'", Driver(DriverEntry(version="550.54", origin=HERE)), MET),
        ("[driver]\nmin = '550.54.1'", Driver(DriverEntry(version="550.54", origin=HERE)), BROKEN),
        ("[driver]\ncuda_min = '12.4.0'", Driver(DriverEntry(cuda_version="12.4", origin=HERE)), MET),
        ("[driver]\nmax = '580'", Driver(DriverEntry(version="580.65.06", origin=HERE)), MET),
        ("[driver]\nmax = '580'", Driver(DriverEntry(version="590.1", origin=HERE)), BROKEN),
        ("[driver]\ncuda_min = '12.4'", Driver(DriverEntry(cuda_version="12.10", origin=HERE)), MET),
        ("[driver]\ncuda_min = '12.4'", Driver(DriverEntry(version="550.1", origin=HERE)), UNKNOWN),
        ("require_readable = ['kernel-log']", KernelLog(()), MET),
        ("require_readable = ['kernel-log']", TWO, UNKNOWN),
    ],
)  # fmt: skip
def test_one_rule(text: str, fact: Any, expected: str) -> None:
    assert statuses(text, fact) == [expected]


def test_a_firmware_that_places_a_gpu_nowhere_was_read() -> None:
    tree = PciTree((PciDevice(bdf="0000:40:00.0", numa_reported=-1, origin=HERE),))
    assert statuses("[numa]\nknown = true", Gpus((gpu(0, numa_node=None),)), tree) == [BROKEN]


def test_what_the_port_does_not_allow_the_card_cannot() -> None:
    tree = PciTree(
        (
            PciDevice(
                bdf="0000:40:00.0", parent="0000:3f:00.0", class_code="030200", device_id="10de:2335", origin=HERE
            ),
            PciDevice(bdf="0000:3f:00.0", max_speed_gts=16.0, class_code="060400", origin=HERE),
        )
    )
    (said,) = judged("[pcie]\ncapable_generation = 5", Gpus((gpu(0),)), tree).values()
    assert (said.status, said.seen) == (BROKEN, "Gen4")


# --- the generation, which an idle link proves nothing of


def test_an_idle_reading_never_passes_a_generation() -> None:
    for speed in (2.5, 32.0):  # at full rate by chance is no proof either
        (said,) = judged("[pcie]\ngeneration = 5", Gpus((gpu(0, speed_gts=speed),))).values()
        assert said.status == UNKNOWN and "without proof of traffic" in said.reason
    samples = (LinkSample(speed_gts=32.0, width=16, busy=None), LinkSample(speed_gts=32.0, width=16, busy=False))
    assert statuses("[pcie]\ngeneration = 5", Gpus((gpu(0, samples=samples),))) == [UNKNOWN]


def test_a_busy_reading_decides_a_generation() -> None:
    def one(*samples: LinkSample) -> list[str]:
        return statuses("[pcie]\ngeneration = 5", Gpus((gpu(0, speed_gts=2.5, samples=samples),)))

    assert one(LinkSample(speed_gts=32.0, width=16, busy=True)) == [MET]
    assert one(LinkSample(speed_gts=16.0, width=16, busy=True), LinkSample(speed_gts=32.0, width=16)) == [BROKEN]
    copies = HostCopies((HostCopy(gpu=0, bdf="0000:40:00.0", speed_gts=32.0, width=16, origin=HERE),))
    assert statuses("[pcie]\ngeneration = 5", Gpus((gpu(0),)), copies) == [MET]
    other = HostCopies((HostCopy(gpu=0, bdf="0000:41:00.0", speed_gts=32.0, width=16, origin=HERE),))
    assert statuses("[pcie]\ngeneration = 5", Gpus((gpu(0),)), other) == [UNKNOWN]


def test_what_card_and_slot_do_not_allow_no_load_brings() -> None:
    assert statuses("[pcie]\ngeneration = 5", Gpus((gpu(0, speed_gts=2.5, max_speed_gts=16.0),))) == [BROKEN]


# --- pairs


@pytest.mark.parametrize(
    ("text", "fact", "expected"),
    [
        ("[pairs]\npath = 'NVL'\nnvlinks = 18", pairs(), [MET, MET]),
        ("[pairs]\npath = 'NVL'\nnvlinks = 18", pairs(nvlinks=12), [MET, BROKEN]),
        ("[pairs]\npath = 'NVL'\nnvlinks = 18", pairs(path="PHB", nvlinks=None), [BROKEN]),
        ("[pairs]\npath = 'NVL'\nnvlinks = 18", pairs(nvlinks=None), [MET, UNKNOWN]),
        ("[pairs]\npath = 'PHB'", pairs(path="PIX"), [MET]),
        ("[pairs]\npath = 'PHB'", pairs(path="SYS"), [BROKEN]),
        ("[pairs]\npath = 'NVL'", pairs(path=None), [UNKNOWN]),
        ("[pairs]\npath = 'NVL'", Pairs(()), [UNKNOWN]),
        ("[pairs]\npath = 'NVL'", pairs(path="PHB", pcie_only=True), [UNKNOWN]),
        ("[pairs]\nnvlinks = 4", pairs(path="SYS", nvlinks=None), [BROKEN]),
        ("[[pair]]\nof = '0-1'\npath = ['PIX']", pairs(path="PIX"), [MET]),
        ("[pairs]\npath = 'NVL'\n[[pair]]\nof = '0-1'\npath = 'SYS'", pairs(path="SYS"), [MET]),
    ],
)  # fmt: skip
def test_pairs(text: str, fact: Any, expected: list[str]) -> None:
    assert statuses(text, TWO, fact) == expected


def test_pairs_without_any_source_and_of_one_gpu() -> None:
    assert statuses("[pairs]\npath = 'NVL'", TWO) == [UNKNOWN]
    assert statuses("[pairs]\npath = 'NVL'") == [UNKNOWN]
    assert statuses("[pairs]\npath = 'NVL'", Gpus((gpu(0),))) == []


# --- NVLinks, NICs, environment


def links(*active: bool | None, speed: float | None = 26.5) -> NvLinks:
    return NvLinks(
        tuple(
            NvLink(gpu=0, link=n, active=a, speed_gbs=speed if a else None, origin=HERE) for n, a in enumerate(active)
        )
    )


def test_nvlinks() -> None:
    one = Gpus((gpu(0),))
    text = "[nvlink]\nlinks = 2"
    assert statuses(text, one, links(True, True)) == [MET]
    assert statuses(text, one, links(True, False)) == [BROKEN]
    assert statuses(text, one, links(True, None)) == [UNKNOWN]
    assert statuses(text, one) == [UNKNOWN]
    assert statuses(text, one, NvLinks(())) == [UNKNOWN]
    assert statuses("[nvlink]\nspeed = '25 GB/s'", one, links(True, True)) == [MET]
    assert statuses("[nvlink]\nspeed = '25 GB/s'", one, links(True, True, speed=12.5)) == [BROKEN]
    assert statuses("[nvlink]\nspeed = '25 GB/s'", one, links(True, True, speed=None)) == [UNKNOWN]


def nics(*states: str | None, rate: float | None = 400.0) -> Nics:
    cards = tuple(
        Nic(name=f"NIC{n}", device=f"mlx5_{n}", state=s, rate_gbps=rate, origin=HERE) for n, s in enumerate(states)
    )
    return Nics(cards, (NicPath(gpu=0, nic="NIC0", path="PXB", origin=HERE),), states_read=True)


@pytest.mark.parametrize(
    ("text", "fact", "expected"),
    [
        ("[nics]\ncount = 2", nics("active", "active"), [MET]),
        ("[nics]\ncount = 2", nics("active", "down"), [BROKEN]),
        ("[nics]\ncount = 2", nics("active", None), [UNKNOWN]),
        ("[nics]\ncount = 1", nics("active", None), [MET]),
        ("[nics]\nstate = 'active'", nics("active", "down"), [MET, BROKEN]),
        ("[nics]\nstate = 'active'\ndevices = 'mlx5_0'", nics("active", "down"), [MET, MET]),
        ("[nics]\ndevices = 'mlx5_7'", nics("active"), [BROKEN]),
        ("[nics]\nrate = '400 Gb/s'", nics("active", rate=200.0), [BROKEN]),
        ("[nics]\nrate = '400 Gb/s'", nics("active", rate=None), [UNKNOWN]),
        ("[nics]\nrate = '400 Gb/s'", nics("active", "down", rate=400.0), [MET]),
        ("[nics]\nrate = '400 Gb/s'", nics("down", rate=10.0), [BROKEN]),
        ("[nics]\nrate = '400 Gb/s'", nics(None, rate=None), [UNKNOWN]),
        ("[nics]\nrate = '400 Gb/s'", Nics((), states_read=True), [BROKEN]),
        ("[nics]\nstate = 'active'\nrate = '400 Gb/s'", Nics((), states_read=True), [BROKEN]),
        ("[nics]\nnearest = 'PXB'\nseverity = 'warning'", nics("active"), [MET]),
        ("[nics]\nnearest = 'PXB'", nics("active"), [MET]),
        ("[nics]\nnearest = 'PIX'", nics("active"), [BROKEN]),
        ("[nics]\nnearest = 'PIX'", Nics(()), [BROKEN]),
        ("[nics]\nnearest = 'PIX'", Nics((Nic(name="NIC0", origin=HERE),)), [UNKNOWN]),
        ("[nics]\ncount = 1", KernelLog(()), [UNKNOWN]),
        ("require_readable = ['nics']", nics("active"), [MET]),
        ("require_readable = ['nics']", Nics((Nic(name="NIC0", origin=HERE),)), [UNKNOWN]),
    ],
)  # fmt: skip
def test_nics(text: str, fact: Any, expected: list[str]) -> None:
    assert statuses(text, Gpus((gpu(0),)), fact) == expected


def setting(name: str, value: str, scope: str = "environment") -> Setting:
    return Setting(name=name, value=value, scope=scope, origin=HERE)


def test_forbidden_environment() -> None:
    text = "[environment]\nforbid = ['NCCL_P2P_DISABLE=1']"
    assert statuses(text, Settings(())) == [MET]
    assert statuses(text, Settings((setting("NCCL_P2P_DISABLE", "1", "/etc/nccl.conf"),))) == [BROKEN]
    assert statuses(text, Settings((setting("NCCL_P2P_DISABLE", "0"),))) == [MET]
    assert statuses("[environment]\nforbid = 'NCCL_P2P_DISABLE'", Settings((setting("NCCL_P2P_DISABLE", "0"),))) == [
        BROKEN
    ]
    for value in (" 1", "01", "0x1", "1 "):
        assert statuses(text, Settings((setting("NCCL_P2P_DISABLE", value),))) == [BROKEN], value
    for value in ("10", "2", "-1", "yes"):
        assert statuses(text, Settings((setting("NCCL_P2P_DISABLE", value),))) == [MET], value
    level = "[environment]\nforbid = 'NCCL_P2P_LEVEL=LOC'"
    assert statuses(level, Settings((setting("NCCL_P2P_LEVEL", "LOC "),))) == [BROKEN]
    assert statuses(level, Settings((setting("NCCL_P2P_LEVEL", "SYS"),))) == [MET]
    assert statuses(text) == [UNKNOWN]
    overruled = Settings((setting("NCCL_P2P_DISABLE", "1", "/etc/nccl.conf"), setting("NCCL_P2P_DISABLE", "0")))
    assert statuses(text, overruled) == [MET]


def test_acs_bits_that_only_root_reads() -> None:
    def tree(acs: dict[str, bool] | None) -> PciTree:
        return PciTree((PciDevice(bdf="0000:3f:00.0", class_code="060400", acs=acs, origin=HERE),))

    text = "require_readable = ['acs']"
    assert statuses(text, tree({})) == [MET] and statuses(text, tree(None)) == [UNKNOWN]
    assert statuses(text, PciTree(())) == [UNKNOWN], "of no bridge, or those of a virtual machine, no bit was read"


# --- measured


def run(level: float = 300.0, latency: float = 19.0, **values: Any) -> Bandwidth:
    rows = (
        BandwidthRow(size=8, busbw_out_gbs=0.1, time_out_us=latency),
        BandwidthRow(size=1 << 30, busbw_out_gbs=level),
    )
    base: dict[str, Any] = {"collective": "all_reduce", "nranks": 2, "rows": rows, "completed": True}
    return Bandwidth((BandwidthRun(origin=HERE, **{**base, **values}),))


LIMITS = "[measured]\nmin_busbw = '280 GB/s'\nmax_latency = '40 us'"


def test_measured_limits() -> None:
    assert statuses(LIMITS, TWO, run()) == [MET, MET]
    assert statuses(LIMITS, TWO, run(level=200.0)) == [BROKEN, MET]
    assert statuses(LIMITS, TWO, run(latency=60.0)) == [MET, BROKEN]


def test_what_was_to_be_measured_and_was_not_is_not_known() -> None:
    for facts in (
        (TWO,),
        (TWO, run(nranks=4)),
        (TWO, run(collective="all_gather")),
        (TWO, run(rows=())),
        (TWO, run(rows=(), completed=False)),
    ):
        assert statuses(LIMITS, *facts) == [UNKNOWN]
    assert statuses(LIMITS, TWO, measuring=False) == []
    assert statuses(LIMITS, Gpus((gpu(0),))) == []


def test_host_copies() -> None:
    text = "[measured]\ngpus = 1\nmin_host_copy = '35 GB/s'"
    one = Gpus((gpu(0),))

    def copies(to: float | None, back: float | None) -> HostCopies:
        return HostCopies((HostCopy(gpu=0, bdf="0000:40:00.0", to_device_gbs=to, from_device_gbs=back, origin=HERE),))

    assert statuses(text, one, copies(55.0, 54.0)) == [MET]
    (said,) = judged(text, one, copies(55.0, 20.0)).values()
    assert (said.status, said.seen) == (BROKEN, "20 GB/s from the GPU")
    assert statuses(text, one, copies(55.0, None)) == [UNKNOWN] and statuses(text, one) == [UNKNOWN]


# --- whose GPUs


def test_the_jobs_gpus() -> None:
    four = Gpus(tuple(gpu(n) for n in range(4)))
    assert allocation("2,3", four).ours == {2, 3} and allocation("0-1", four).ours == {0, 1}
    assert allocation("GPU-2", four).ours == {2}
    assert (
        allocation(None, four).ours is None
        and allocation("0-3", four).ours is None
        and allocation("", four).ours is None
    )
    assert allocation("4-5", Gpus((gpu(0), gpu(1)))).ours is None, "inside the job its GPUs are numbered anew"
    missing = allocation("2,9", four)
    assert missing.ours == {2} and missing.absent == ("9",)
    (said,) = missing.outcomes
    assert said.status == BROKEN and said.subject == "gpu:9" and said.wants == "GPU 9 (SLURM_JOB_GPUS=2,9)"


def test_a_driver_that_does_not_answer_misses_no_gpu() -> None:
    bus = Gpus(tuple(Gpu(bdf=f"0000:4{n}:00.0", origin=HERE) for n in range(8)))
    assert (allocation("4,5", bus).ours, allocation("4,5", bus).outcomes) == (None, ())


def test_numbers_of_mig_instances_are_no_gpus() -> None:
    off, on = (Gpus(tuple(gpu(n, mig_mode=mode) for n in range(2))) for mode in ("disabled", "enabled"))
    assert allocation("9", off).absent == ("9",)
    assert (allocation("9", on).ours, allocation("9", on).absent) == (None, ())


def test_only_the_jobs_gpus_are_judged() -> None:
    four = Gpus((gpu(0), gpu(1), gpu(2, width=4), gpu(3, name="Other")))
    mine = allocation("0,1", four)
    text = "[gpus]\ncount = 4\nmodel = 'H200'\n[pcie]\nwidth = 16\n[pairs]\npath = 'NVL'"
    got = judged(text, four, pairs(4), given=mine)
    assert {o.status for o in got.values()} == {MET}
    assert {s for r, s in got if r == "pairs.path"} == {"pair:0-1"} and ("gpus.count", "host") in got
    assert BROKEN in statuses(text, four, pairs(4))


def finding(slug: str, severity: str, subject: str) -> Finding:
    return Finding(slug, severity, subject, "It is so.", (Evidence("x", "line 1", "y"),))


@pytest.mark.parametrize(
    ("subject", "kept"),
    [("gpu:0000:40:00.0", True), ("gpu:0000:42:00.0", False), ("gpu:1", True), ("gpu:2", False), ("pair:0-1", True), ("pair:1-2", False),
     ("nvlink:0/3", True), ("nvlink:3/0", False), ("host", True), ("pci:0000:3f:00.0", True), ("nic:mlx5_0", True), ("gpu:?", True)],
)  # fmt: skip
def test_findings_of_other_jobs_gpus_are_left_out(subject: str, kept: bool) -> None:
    given = allocation("0,1", Gpus(tuple(gpu(n) for n in range(4))))
    result = CheckResult("GD210", "pcie-width", FOUND, None, (finding("pcie-width", ERROR, subject),))
    weighed = weigh((result,), None, given, (), TODAY)
    assert bool(weighed.results[0].findings) == kept and len(weighed.of_others) == (not kept)
    assert weighed.results[0].status == (FOUND if kept else OK)


def test_gpus_hidden_from_a_container_count() -> None:
    def device(n: int) -> PciDevice:
        return PciDevice(
            bdf=f"0000:4{n}:00.0", class_code="030200", device_id="10de:2335", driver="nvidia", origin=HERE
        )

    tree = PciTree(tuple(device(n) for n in range(4)), complete=True)
    grant = Grant(GrantEntry(device_nodes=(0, 1), origin=HERE))
    (said,) = judged("[gpus]\ncount = 4", replace(TWO, attached=2), tree, grant).values()
    assert (said.status, said.seen) == (MET, "2 and 2 hidden from here")


def in_container(*, first: int, last: int) -> tuple[Any, ...]:
    """Of four GPUs of one node these, which a container numbers from 0."""
    seen = Gpus(
        tuple(gpu(at, bdf=f"0000:4{n}:00.0", numa_node=n // 2) for at, n in enumerate(range(first, last + 1))),
        attached=last - first + 1,
    )
    tree = PciTree(
        tuple(
            PciDevice(bdf=f"0000:4{n}:00.0", class_code="030200", device_id="10de:2335", driver="nvidia", origin=HERE)
            for n in range(4)
        ),
        complete=True,
    )
    return seen, tree, Grant(GrantEntry(device_nodes=tuple(range(first, last + 1)), origin=HERE))


def test_a_container_is_judged_by_the_numbers_of_the_node() -> None:
    text = "[numa]\nof_gpus = [0, 0, 1, 1]"
    for first, last in ((0, 1), (2, 3), (3, 3)):
        assert set(statuses(text, *in_container(first=first, last=last))) == {MET}
    assert statuses("[numa]\nof_gpus = [1, 1, 0, 0]", *in_container(first=3, last=3)) == [BROKEN]
    text = "[pairs]\npath = 'NVL'\n[[pair]]\nof = '0-1'\npath = ['SYS']"
    assert statuses(text, *in_container(first=0, last=1), pairs(2)) == [BROKEN]
    assert statuses(text, *in_container(first=2, last=3), pairs(2)) == [MET]


def test_what_the_policy_names_and_the_node_has_not_is_no_pass() -> None:
    assert statuses("[numa]\nof_gpus = [0, 0, 1]", TWO) == [MET, MET, BROKEN]
    assert statuses("[numa]\nof_gpus = [0, 0, 1, 1, 2]", *in_container(first=0, last=1)) == [MET, MET, BROKEN]
    assert statuses("[numa]\nof_gpus = [0]", TWO) == [MET, UNKNOWN], "a GPU that the policy forgets is not judged by it"
    text = "[[pair]]\nof = ['0-1', '1-2']\npath = 'NVL'"
    assert statuses(text, TWO, pairs(2)) == [MET, BROKEN] and statuses(text, Gpus((gpu(0), gpu(1), gpu(2))), pairs(3)) == [MET, MET]
    four = Gpus(tuple(gpu(n) for n in range(4)))
    assert statuses("[[pair]]\nof = '2-3'\npath = 'NVL'", four, pairs(4), given=allocation("0,1", four)) == []
    assert statuses("[[pair]]\nof = '0-2'\npath = 'NVL'", *in_container(first=0, last=1), pairs(2)) == [], "GPU2 is hidden"


def test_an_allocation_that_names_no_gpus_is_not_known() -> None:
    four = Gpus(tuple(gpu(n) for n in range(4)))
    for words in ("garbage", "0,5-3", "0 1", "gpu:2", "0-99999", "MIG-1", "2(IDX:0)"):
        given = allocation(words, four)
        assert given.ours is None and [o.status for o in given.outcomes] == [UNKNOWN], words
    for words in (" ", ",", "a,b,c,d"):
        assert (allocation(words, four).ours, allocation(words, four).outcomes) == (None, ())
    long = Gpus(tuple(gpu(n, uuid=f"GPU-{n}1234567-89ab-cdef-0123-456789abcdef") for n in range(4)))
    assert allocation("GPU-21234567", long).ours == {2}, "CUDA takes the beginning of a UUID for the whole"
    assert allocation("GPU-deadbeef-89ab-cdef-0123-456789abcdef", long).absent != ()


def test_a_lost_gpu_may_have_shifted_the_numbers() -> None:
    three, tree, _ = in_container(first=1, last=3)  # 0000:40 does not answer, and the others are numbered from 0
    lost = CheckResult("GD103", "gpu-missing", FOUND, None, (finding("gpu-missing", ERROR, "gpu:0000:40:00.0"),))
    assert weigh((lost,), None, allocation("0,1", three, tree=tree), (), TODAY).results[0].findings
    with_gap = Gpus(tuple(gpu(n) for n in (1, 2, 3)))
    assert not weigh((lost,), None, allocation("1,2", with_gap, tree=tree), (), TODAY).results[0].findings
    behind = Gpus(tuple(gpu(n) for n in (0, 1, 2)))
    last = CheckResult("GD103", "gpu-missing", FOUND, None, (finding("gpu-missing", ERROR, "gpu:0000:43:00.0"),))
    assert not weigh((last,), None, allocation("0,1", behind, tree=tree), (), TODAY).results[0].findings


def test_a_container_teaches_what_the_node_is() -> None:
    facts = in_container(first=2, last=3)
    text = learn(FactStore("node07", (*facts, pairs(2)), recorded=False), "2027-01-15")
    assert "count = 4" in text and "of_gpus" not in text
    assert set(statuses(text, *facts, pairs(2))) == {MET}


# --- what findings count for


def weighed(text: str, *found: Finding) -> dict[str, str]:
    policy = load(text, "p.toml", ("acs", "aspm", "nvlink-down"))
    results = tuple(CheckResult("GD218", f.slug, FOUND, None, (f,)) for f in found)
    return {
        f"{f.slug} {f.subject}": f.severity
        for r in weigh(results, policy, Allocation(), (), TODAY).results
        for f in r.findings
    }


def test_fail_and_warn() -> None:
    text = "[findings]\nfail = ['acs']\nwarn = ['aspm']"
    got = weighed(
        text, finding("acs", NOTE, "host"), finding("aspm", NOTE, "host"), finding("nvlink-down", ERROR, "gpu:0")
    )
    assert got == {"acs host": ERROR, "aspm host": WARNING, "nvlink-down gpu:0": ERROR}


def accept(until: str, subject: str = "") -> str:
    return f"[[accept]]\nslug = 'acs'\nreason = 'as agreed'\nuntil = {until}\n" + (
        f"subject = '{subject}'\n" if subject else ""
    )


def test_an_accepted_finding_is_a_note_until_its_day() -> None:
    one = finding("acs", WARNING, "pci:0000:3f:00.0")
    assert weighed(accept("2027-01-15"), one) == {"acs pci:0000:3f:00.0": NOTE}
    assert weighed(accept("2027-01-14"), one) == {"acs pci:0000:3f:00.0": WARNING}
    assert weighed(accept("2027-01-14") + accept("2027-06-01"), one) == {"acs pci:0000:3f:00.0": NOTE}
    assert weighed(accept("2027-06-01", "pci:0000:00:00.0"), one) == {"acs pci:0000:3f:00.0": WARNING}
    assert weighed(accept("2027-06-01"), finding("aspm", WARNING, "host")) == {"aspm host": WARNING}


def test_an_expired_acceptance_is_told() -> None:
    policy = load(accept("2027-01-14"), "p.toml", ("acs",))
    result = CheckResult("GD218", "acs", FOUND, None, (finding("acs", WARNING, "host"),))
    told = weigh((result,), policy, Allocation(), (), TODAY)
    assert [a.until for a, _ in told.expired] == ["2027-01-14"] and told.accepted == ()


# --- learned


def test_what_is_learned_from_a_node_that_node_meets() -> None:
    facts = (
        TWO, pairs(), links(True, True), nics("active"), Driver(DriverEntry(version="550.54.15", origin=HERE)), Settings(()), run(),
    )  # fmt: skip
    text = learn(FactStore("node07", facts), TODAY)
    assert 'min_busbw = "255 GB/s"' in text and "of_gpus = [0, 0]" in text
    found = {o.status for o in judged(text, *facts).values()}
    assert BROKEN not in found and MET in found


def test_a_hostile_name_stays_a_text() -> None:
    text = learn(FactStore('n"\n[gpus]', (Gpus((gpu(0, name='x"\n[accept]\n\\ \x1b[31m'),)),)), TODAY)
    policy = load(text, "p.toml", ())
    assert policy.accept == () and policy.gpus is not None and policy.gpus.count == 1


def test_a_mesh_of_unequal_pairs_is_learned_pair_by_pair() -> None:
    three = Gpus((gpu(0), gpu(1), gpu(2)))
    mixed = Pairs((*pairs(2).pairs, Pair(a=0, b=2, path="SYS", origin=HERE), Pair(a=1, b=2, path="SYS", origin=HERE)))
    text = learn(FactStore(None, (three, mixed)), TODAY)
    assert text.count("[[pair]]") == 2 and set(statuses(text, three, mixed)) == {MET}
