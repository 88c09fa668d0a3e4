import pytest

from gpudoctor.checkers.nccl_env import NcclEnv, level_of, strtol
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.nccl import Nccl, NcclComm
from gpudoctor.facts.system import Cpu, CpuEntry, JobProcess, Jobs, Setting, Settings
from gpudoctor.facts.topology import Nic, Nics, NvLink, NvLinks
from gpudoctor.model import CannotTell, Evidence
from gpudoctor.nccl_variables import variables
from tests.builders import host
from tests.support import HERE, check, findings

NICS = Nics((Nic(name="NIC0", device="mlx5_0", origin=HERE), Nic(name="NIC1", device="mlx5_1", origin=HERE)))
GEFORCE = {"name": "NVIDIA GeForce RTX 4090", "device_id": "10de:2684"}


def env(*pairs, scope="environment"):
    return Settings(tuple(
        Setting(name=n, value=v, scope=scope, origin={"*": Evidence(scope, f"line {i}", f"{n}={v}")})
        for i, (n, v) in enumerate(pairs, 1)
    ))  # fmt: skip


def p2p(*facts):
    return findings(NcclEnv(), *facts).get(("p2p-disabled-env", "host"))


def harm(*facts):
    return [f for f in check(NcclEnv(), *facts) if f.slug == "nccl-env"]


# --- p2p-disabled-env

OFF = env(("NCCL_P2P_DISABLE", "1"))


def test_nvlink_is_an_error():
    said = p2p(OFF, *host().nvlink().facts())
    assert said.severity == "error"
    assert "NV18" in said.message
    assert said.remediation[0].command == "unset NCCL_P2P_DISABLE"


def test_nvlink_known_from_its_own_listing():
    links = NvLinks((NvLink(gpu=0, link=0, active=True, origin=HERE),))
    assert p2p(OFF, links).severity == "error"
    assert p2p(OFF, NvLinks((NvLink(gpu=0, link=0, active=False, origin=HERE),))).severity == "warning"


@pytest.mark.parametrize("facts", [(), host().p2p("OK").facts(), host(name="Unheard of", device_id="10de:ffff").facts()])
def test_unknown_or_allowed_is_a_warning(facts):
    assert p2p(OFF, *facts).severity == "warning"


@pytest.mark.parametrize("made", [host(**GEFORCE), host().p2p("CNS"), host(gpus=1)])
def test_nothing_lost_is_a_note(made):
    assert p2p(OFF, *made.facts()).severity == "note"


def test_parts_alone_tell_it_too():
    gpus = Gpus(tuple(Gpu(index=i, origin=HERE, **GEFORCE) for i in range(2)))
    assert p2p(OFF, gpus).severity == "note"


@pytest.mark.parametrize("value", ["0", "2", "true", "yes", ""])
def test_only_exactly_one_counts(value):
    assert p2p(env(("NCCL_P2P_DISABLE", value)), *host().nvlink().facts()) is None


def test_the_environment_wins_over_the_file():
    both = Settings((*env(("NCCL_P2P_DISABLE", "1"), scope="/etc/nccl.conf"), *env(("NCCL_P2P_DISABLE", "0"))))
    assert p2p(both, *host().nvlink().facts()) is None


def test_a_config_file_is_named_with_its_line():
    said = p2p(env(("NCCL_DEBUG", "WARN"), ("NCCL_P2P_DISABLE", "1"), scope="/etc/nccl.conf"), *host().nvlink().facts())
    assert "/etc/nccl.conf (line 2)" in said.message
    assert any("sed -i" in (s.command or "") and "/etc/nccl.conf" in (s.command or "") for s in said.remediation)


@pytest.mark.parametrize("value", ["LOC", "0"])
def test_level_loc(value):
    assert p2p(env(("NCCL_P2P_LEVEL", value)), *host().nvlink().facts()).severity == "error"


@pytest.mark.parametrize("value", ["NVL", "PIX", "1", "SYS", "5", "nvl", "NODE"])
def test_levels_that_leave_nvlink_alone(value):
    assert p2p(env(("NCCL_P2P_LEVEL", value)), *host().nvlink().facts()) is None


def test_a_level_below_the_pairs_path():
    below_one_switch = host(switches=1).p2p("OK")
    assert p2p(env(("NCCL_P2P_LEVEL", "NVL")), *below_one_switch.facts()).severity == "warning"
    assert p2p(env(("NCCL_P2P_LEVEL", "PIX")), *below_one_switch.facts()) is None


def test_beyond_pxb_ncclS_default_would_not_use_it_either():
    far = host(path="PHB").p2p("OK")
    level = env(("NCCL_P2P_LEVEL", "PIX"))
    assert p2p(level, *far.facts()) is None
    amd = Cpu(CpuEntry(vendor="AuthenticAMD", origin=HERE))
    assert p2p(level, *far.facts(), amd).severity == "warning", "on AMD with two GPUs the default is SYS"


def test_a_level_without_paths():
    said = check(NcclEnv(), env(("NCCL_P2P_LEVEL", "NVL")))
    assert [(type(s), s.slug) for s in said] == [(CannotTell, "p2p-disabled-env")]


def test_a_job_that_runs():
    jobs = Jobs((JobProcess(pid=42, name="python3", environment={"NCCL_P2P_DISABLE": "1"}, origin=HERE),))
    said = p2p(jobs, *host().nvlink().facts())
    assert "process 42 (python3)" in said.message
    many = Jobs(tuple(JobProcess(pid=n, environment={"NCCL_P2P_DISABLE": "1"}, origin=HERE) for n in range(8)))
    assert len(check(NcclEnv(), many)) == 1, "eight ranks with one environment are said once"


@pytest.mark.parametrize(("text", "number"), [("1", 1), (" 1", 1), ("0x1", 1), ("1abc", 1), ("yes", 0), ("-1", -1), ("010", 8)])
def test_numbers_as_ncclS_strtol_reads_them(text, number):
    assert strtol(text) == number


@pytest.mark.parametrize(
    ("text", "level"), [("PXB", "PXB"), ("pxb", None), ("0", "LOC"), ("3", "PHB"), ("4", "SYS"), ("99", "SYS"), ("NODE", None)]
)
def test_levels_as_nccl_reads_them(text, level):
    assert level_of(text) == level


# --- nccl-env


def severities(*facts):
    return [f.severity for f in harm(*facts)]


@pytest.mark.parametrize(
    ("pair", "facts"),
    [
        (("NCCL_SHM_DISABLE", "1"), host(path="PHB").facts()),
        (("NCCL_IB_DISABLE", "1"), [NICS]),
        (("NCCL_NET", "Socket"), [NICS]),
        (("NCCL_IB_HCA", "mlx5_7"), [NICS]),
        (("NCCL_IB_HCA", "^mlx5"), [NICS]),
        (("NCCL_IB_HCA", "=mlx5"), [NICS]),
        (("NCCL_NET_GDR_LEVEL", "LOC"), [NICS]),
        (("NCCL_SOCKET_IFNAME", "docker0"), []),
        (("NCCL_SOCKET_IFNAME", "=lo"), []),
        (("NCCL_MAX_NCHANNELS", "2"), host().nvlink().facts()),
        (("NCCL_PROTO", "LL"), []),
    ],
)
def test_harm_is_a_warning(pair, facts):
    assert severities(env(pair), *facts) == ["warning"]


@pytest.mark.parametrize(
    ("pair", "facts"),
    [
        (("NCCL_SHM_DISABLE", "1"), host().nvlink().facts()),
        (("NCCL_MAX_NCHANNELS", "2"), host(path="PHB").facts()),
        (("NCCL_MAX_CTAS", "16"), host().nvlink().facts()),
        (("NCCL_NET_GDR_LEVEL", "0"), []),
        (("NCCL_ALGO", "Ring"), []),
        (("NCCL_PROTO", "Simple"), []),
        (("NCCL_NVLS_ENABLE", "0"), []),
        (("NCCL_TOPO_FILE", "/opt/topo.xml"), []),
        (("NCCL_IGNORE_DISABLED_P2P", "1"), []),
        (("NCCL_BUFFSIZE", "65536"), []),
        (("NCCL_P2P_DISABLE", "true"), []),
        (("NCCL_P2P_LEVEL", "nvl"), []),
        (("NCCL_TIMEOUT", "1800"), []),
        (("NCCL_P2P_DISBALE", "1"), []),
    ],
)
def test_worth_knowing_is_a_note(pair, facts):
    assert severities(env(pair), *facts) == ["note"]


@pytest.mark.parametrize(
    "pair",
    [
        ("NCCL_SHM_DISABLE", "0"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_IB_HCA", "mlx5"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("NCCL_IB_HCA", "^mlx5_1"),
        ("NCCL_SOCKET_IFNAME", "^lo,docker0"),
        ("NCCL_SOCKET_IFNAME", "eth0,lo"),
        ("NCCL_NET_GDR_LEVEL", "PIX"),
        ("NCCL_MAX_NCHANNELS", "32"),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_BUFFSIZE", "8388608"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("NCCL_OFI_NCCLNET_ENABLE", "1"),
        ("NCCL_SOME_NEW_SWITCH_OF_2031", "1"),
        ("OMP_NUM_THREADS", "1"),
    ],
)
def test_harmless(pair):
    assert harm(env(pair), NICS, *host().nvlink().facts()) == []


def test_rdma_switched_off_where_there_is_none():
    assert harm(env(("NCCL_IB_DISABLE", "1")), Nics((), states_read=True)) == []


def test_the_typing_error_names_what_may_be_meant():
    assert "NCCL_P2P_DISABLE may be meant" in harm(env(("NCCL_P2P_DISBALE", "1")))[0].message


def test_nvls_off_is_never_advised_against():
    assert harm(env(("NCCL_NVLS_ENABLE", "0")))[0].remediation == ()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_DISABLE_P2P", "NCCL_P2P_DISABLE"), ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE=0"), ("NCCL_IB_ENABLE", "NCCL_IB_DISABLE"),
        ("NCCL_PROTOCOL", "NCCL_PROTO"), ("NCCL_IB_RETRY_COUNT", "NCCL_IB_RETRY_CNT"), ("NCCL_MAX_CHANNELS", "NCCL_MAX_NCHANNELS"),
        ("NCCL_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"), ("NCCL_MNNVL_DISABLE", "NCCL_MNNVL_ENABLE=0"),
    ],
)  # fmt: skip
def test_what_a_name_stands_for(name, near):
    said = harm(env((name, "1")))
    assert len(said) == 1 and f"{near} may be meant" in said[0].message and said[0].severity == "note"


@pytest.mark.parametrize("name", ["NCCL_MY_OWN_THING", "NCCL_OFI_NET_IF", "NCCL_RUN_DIAGNOSTICS", "NCCL_SOCKET_NTHREADS"])
def test_a_name_that_is_known_or_near_none_is_left_alone(name):
    assert not harm(env((name, "1")))


def nccl(version):
    """A log of one rank of this release."""
    return Nccl(comms=(NcclComm(source="log", version=version, origin=HERE),))


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("NCCL_TREE_THRESHOLD", None, "up to 2.4 only; later releases have NCCL_ALGO"),
        ("NCCL_IB_GDR_LEVEL", None, "up to 2.3 only; later releases have NCCL_NET_GDR_LEVEL"),
        ("NCCL_WORK_FIFO_DEPTH", "2.28.9", "up to 2.21 only; later releases have NCCL_WORK_FIFO_BYTES"),
        ("NCCL_CUMEM_ENABLE", "2.14.3", "2.18 and later only"),
    ],
)
def test_a_variable_that_this_release_does_not_read(name, version, words):
    said = harm(env((name, "0")), *((nccl(version),) if version else ()))
    assert len(said) == 1 and words in said[0].message and said[0].severity == "note"


@pytest.mark.parametrize(("name", "version"), [("NCCL_WORK_FIFO_DEPTH", None), ("NCCL_WORK_FIFO_DEPTH", "2.21.5"), ("NCCL_CUMEM_ENABLE", "2.18.1"), ("NCCL_CUMEM_ENABLE", None)])
def test_one_that_it_reads_or_that_may_be_read(name, version):
    assert not any("is read by" in f.message for f in harm(env((name, "0")), *((nccl(version),) if version else ())))


def test_the_list_of_names_is_whole():
    assert {"NCCL_P2P_DISABLE", "NCCL_DEBUG", "NCCL_NVLS_ENABLE", "NCCL_IB_TIMEOUT", "NCCL_MAX_NRINGS"} <= variables().keys()
    assert "NCCL_TIMEOUT" not in variables()


def test_nothing_set():
    assert check(NcclEnv(), Settings(()), *host().nvlink().facts()) == []


@pytest.mark.parametrize(
    ("name", "value", "usual"),
    [
        ("NCCL_PXN_DISABLE", "1", "0"), ("NCCL_NVB_DISABLE", "1", "0"), ("NCCL_P2P_DIRECT_DISABLE", "1", "0"), ("NCCL_P2P_USE_CUDA_MEMCPY", "1", "0"),
        ("NCCL_CUMEM_ENABLE", "0", "1"), ("NCCL_MNNVL_ENABLE", "0", "2"), ("NCCL_DMABUF_ENABLE", "0", "1"), ("NCCL_CHECK_POINTERS", "1", "0"),
        ("NCCL_IB_TIMEOUT", "14", "22"), ("NCCL_IB_RETRY_CNT", "2", "7"), ("NCCL_NTHREADS", "128", "512"),
    ],
)  # fmt: skip
def test_a_switch_that_costs_is_named_and_its_usual_value_is_not(name, value, usual):
    said = harm(env((name, value)))
    assert len(said) == 1 and said[0].severity == "note" and said[0].message.startswith(f"{name}={value}: ") and not said[0].remediation
    assert not harm(env((name, usual))) and not harm(env((name, "")))


def test_a_time_that_an_old_release_has_itself():
    assert not harm(env(("NCCL_IB_TIMEOUT", "14")), nccl("2.10.3"))
    assert harm(env(("NCCL_IB_TIMEOUT", "14")), nccl("2.18.5"))


def test_what_only_matters_between_hosts_on_one():
    one = Nccl(comms=(NcclComm(source="log", version="2.28.9", nnodes=1, origin=HERE),))
    assert not harm(env(("NCCL_PXN_DISABLE", "1")), one) and harm(env(("NCCL_NVB_DISABLE", "1")), one)
