"""lscpu, numactl, df, ulimit, lsmod, settings, RDMA ports and PyTorch's environment report."""

from __future__ import annotations

import pytest

from gpudoctor.facts.base import Loss
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Cpu, Limits, Modules, Numa, Platform, Settings, Shm, Software
from gpudoctor.facts.topology import Nics
from gpudoctor.parsers import nccl_conf
from gpudoctor.read.section import Unparsable
from gpudoctor.record import replace
from tests.support import FIXTURES, parse, recognise, report, section

OUTPUTS = FIXTURES / "outputs"


def read(text: str) -> FactStore:
    return FactStore(None, [f for s in recognise(text) for f in parse(s.kind, s.text, s.command)])


def output(name: str) -> FactStore:
    return read((OUTPUTS / name).read_text())


# --- lscpu


def test_lscpu_of_a_guest():
    got = output("lscpu/h200x2-vm.txt")
    cpu, platform = got.get(Cpu).entry, got.get(Platform).entry
    assert (cpu.vendor, cpu.family, cpu.model, cpu.sockets, cpu.online) == ("GenuineIntel", 6, 207, 1, "0-31")
    assert (platform.vm, platform.hypervisor) == (True, "kvm")
    assert [(n.id, n.cpus) for n in got.get(Numa)] == [(0, "0-31")]


def test_lscpu_of_two_sockets_indented():
    got = output("lscpu/epyc-two-sockets.txt")
    cpu = got.get(Cpu).entry
    assert (cpu.vendor, cpu.model_name, cpu.family, cpu.sockets) == ("AuthenticAMD", "AMD EPYC 7543 32-Core Processor", 25, 2)
    assert [(n.id, n.cpus) for n in got.get(Numa)] == [(0, "0-31,64-95"), (1, "32-63,96-127")]
    # The flags are all there and `hypervisor` is not among them; `Virtualization: AMD-V` is a feature of bare metal.
    assert (got.get(Platform).entry.vm, got.get(Platform).entry.hypervisor) == (False, None)


@pytest.mark.parametrize("around", ["Package: cuda\n{}Version: 12.4\n", "   Static hostname: node07\n      {}\n", " OSType: linux\n {} CPUs: 64\n"])
def test_other_tools_name_the_architecture_too(around: str) -> None:
    line = "Architecture: x86_64\n"
    assert report("check", "--from", "-", stdin=around.format(line).encode())[0] == 3
    assert report("check", "--from", "-", stdin=f"{line}CPU(s): 64\nSocket(s): 2\n".encode())[0] == 0


def test_shortened_flags_prove_no_bare_metal():
    assert read("Architecture: x86_64\nFlags: fpu vme de ...\n").get(Platform) is None
    assert read("Architecture: x86_64\nFlags: fpu vme de\n").get(Platform) is None
    assert read("Architecture: aarch64\nCPU(s): 72\n").get(Platform) is None


def test_nodes_without_processors_stay_apart():
    got = output("lscpu/grace-memory-nodes.txt")
    assert [(n.id, n.cpus) for n in got.get(Numa)] == [(0, "0-71"), (1, ""), (2, "")]
    assert [n.id for n in got.get(Numa).with_cpus()] == [0]
    assert got.get(Cpu).entry.architecture == "aarch64"


def test_lscpu_excerpt_by_grep():
    assert [(n.id, n.cpus) for n in read("$ lscpu | grep NUMA\nNUMA node(s): 1\nNUMA node0 CPU(s):   0-15\n").get(Numa)] == [(0, "0-15")]


# --- numactl


def test_numactl_nodes_memory_and_distances():
    numa = output("numactl-h/two-nodes-and-memory.txt").get(Numa)
    assert [(n.id, n.cpus, n.memory_mib) for n in numa] == [(0, "0-3,8-11", 257662), (1, "4-7,12-15", 258010), (2, "", 97280)]


def test_numactl_names_nodes_that_the_author_left_out():
    numa = read("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n").get(Numa)
    assert [(n.id, n.cpus) for n in numa] == [(0, "0-1"), (1, None)]


# --- df


@pytest.mark.parametrize(
    ("text", "size", "free"),
    [
        ("Filesystem      Size  Used Avail Use% Mounted on\nshm              64M  1.5M   63M   3% /dev/shm\n", 64 << 20, 63 << 20),
        ("Filesystem     1K-blocks  Used Available Use% Mounted on\nshm                65536    12     65524   1% /dev/shm\n", 64 << 20, 65524 << 10),
        ("Filesystem       1B-blocks Used    Available Use% Mounted on\ntmpfs         67108864    0     67108864   0% /dev/shm\n", 64 << 20, 64 << 20),
        ("Filesystem     1M-blocks  Used Available Use% Mounted on\ntmpfs                 64     0        64   0% /dev/shm\n", 64 << 20, 64 << 20),
        ("Filesystem     Type   Size  Used Avail Use% Mounted on\ntmpfs          tmpfs  252G     0  252G   0% /dev/shm\n", 252 << 30, 252 << 30),
        ("Filesystem      Size  Used Avail Use% Mounted on\nudev            252G     0  252G   0% /dev\ntmpfs           1.0G     0  1.0G   0% /dev/shm\n", 1 << 30, 1 << 30),
        ("tmpfs            64M     0   64M   0% /dev/shm\n", 64 << 20, 64 << 20),
    ],
)
def test_df_in_every_unit(text, size, free):
    entry = read(text).get(Shm).entry
    assert (entry.size_bytes, entry.free_bytes, entry.mounted) == (size, free, True)


def test_df_says_where_it_rounded():
    exact = read("Filesystem     1K-blocks  Used Available Use% Mounted on\nshm                65536    12     65524   1% /dev/shm\n")
    assert "rounded" in output("df/h200x2-vm.txt").get(Shm).entry.at("size_bytes").value
    assert "rounded" not in exact.get(Shm).entry.at("size_bytes").value


def test_df_without_unit_or_mount_is_no_guess():
    got = read("tmpfs   65536    0   65536   0% /dev/shm\n")
    assert got.get(Shm).entry.size_bytes is None and got.losses
    header = "Filesystem      Size  Used Avail Use% Mounted on\n"
    assert read(header + "overlay         1.8T  1.0T  800G  56% /\n").get(Shm) is None
    assert read("$ df -h /dev/shm\n" + header + "overlay         1.8T  1.0T  800G  56% /\n").get(Shm).entry.mounted is False


def test_df_decimal_units():
    header = "Filesystem      Size  Used Avail Use% Mounted on\n"
    assert read("$ df -H /dev/shm\n" + header + "shm              68M     0   68M   0% /dev/shm\n").get(Shm).entry.size_bytes == 68_000_000


# --- limits


@pytest.mark.parametrize(
    ("text", "size", "unlimited"),
    [
        ("max locked memory           (kbytes, -l) unlimited\n", None, True),
        ("max locked memory       (kbytes, -l) 64\n", 65536, False),
        ("-l: locked-in-memory size (kbytes)  8192\n", 8 << 20, False),
        ("Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         65536                unlimited            bytes     \n", 65536, False),
    ],
)
def test_limits_in_every_shell(text, size, unlimited):
    entry = read(text).get(Limits).entry
    assert (entry.memlock_bytes, entry.memlock_unlimited) == (size, unlimited)


def test_ulimit_a_whole():
    entry = output("ulimit/h200x2-vm.txt").get(Limits).entry
    assert (entry.memlock_unlimited, entry.stack_unlimited) == (True, False)


@pytest.mark.parametrize(
    ("text", "size", "unlimited"),
    [
        ("$ ulimit -l\n64\n", 65536, False),
        ("root@node01:~# ulimit -l\nunlimited\nroot@node01:~# df -h\n", None, True),
        ("[user@node07 ~]$ srun bash -c 'ulimit -l'\nunlimited\n8192\n", 8192 * 1024, False),  # the lowest of several ranks
        ("ulimit -l\n65536\n", 65536 * 1024, False),
    ],
)
def test_the_number_below_the_command(text: str, size: int | None, unlimited: bool) -> None:
    entry = read(text).get(Limits).entry
    assert (entry.memlock_bytes, entry.memlock_unlimited) == (size, unlimited)


def test_a_number_without_a_name_is_no_limit():
    assert recognise("64\n") == [] and recognise("$ ulimit -n\n1024\n") == []
    for text in ("$ ulimit -l\nbash: ulimit: -l: bad\n", "Is it your ulimit -l?\n64\n", "$ ulimit -l\n\n64 packages\n"):
        assert read(text).get(Limits) is None, text
    # 64 at the very end may be the beginning of 65536.
    assert [type(f) for f in parse("ulimit", "$ ulimit -l\n64")] == [Loss]
    # 64 at the very end may be the beginning of 65536.
    assert [type(f) for f in parse("ulimit", "max locked memory       (kbytes, -l) 64")] == [Loss]


# --- lsmod


def test_lsmod_whole_and_by_grep():
    whole = output("lsmod/dgx.txt").get(Modules)
    assert whole.complete and {"nvidia", "nvidia_peermem", "gdrdrv"} <= whole.loaded.keys()
    assert whole.origin.where == "line 6"
    part = read("$ lsmod | grep nvidia\nnvidia_uvm           1523712  0\nnvidia              56598528  147 nvidia_uvm\n").get(Modules)
    assert not part.complete and list(part.loaded) == ["nvidia_uvm", "nvidia"]


def test_lsmod_that_was_cut_proves_no_absence():
    text = (OUTPUTS / "lsmod/dgx.txt").read_text()
    assert not FactStore(None, parse("lsmod", text[:-20])).get(Modules).complete


# --- settings


def test_settings_and_nothing_else_of_an_environment():
    text = "HOME=/home/someone\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwx\nNCCL_DEBUG=INFO\nAWS_SECRET_ACCESS_KEY=x\nexport NCCL_SOCKET_IFNAME='eth0'\nCUDA_VISIBLE_DEVICES=\nTORCH_NCCL_BLOCKING_WAIT=1\nPATH=/bin\n"
    got = {s.name: (s.value, s.scope) for s in read(text).get(Settings)}
    assert got == {
        "NCCL_DEBUG": ("INFO", "environment"),
        "NCCL_SOCKET_IFNAME": ("eth0", "environment"),
        "CUDA_VISIBLE_DEVICES": ("", "environment"),
        "TORCH_NCCL_BLOCKING_WAIT": ("1", "environment"),
    }


@pytest.mark.parametrize(
    "line", ["NCCL_NET_AUTH_TOKEN=abc", "NCCL_CONF_FILE=https://user:word@host/x", "NCCL_X=" + "a" * 500, "NCCL_X=hf_abcdefghijklmnopqrstuvwx"]
)
def test_what_may_be_secret_is_not_kept(line):
    (setting,) = read(line + "\n").get(Settings)
    assert setting.value == "(hidden)"
    assert line.split("=", 1)[1] not in setting.at("value").value


@pytest.mark.parametrize(
    ("above", "scope"),
    [
        ("$ cat /etc/nccl.conf", "/etc/nccl.conf"),
        ("root@node1:~# cat ~/.nccl.conf", "~/.nccl.conf"),
        ("$ cat /home/someone/.nccl.conf", "~/.nccl.conf"),
        ("==> /etc/nccl.conf <==", "/etc/nccl.conf"),
        ("$ env | grep NCCL", "environment"),
        ("my settings:", "environment"),
    ],
)
def test_the_file_is_told_by_the_command(above, scope):
    (setting,) = read(f"{above}\n# tuned\nNCCL_P2P_LEVEL=SYS\n").get(Settings)
    assert (setting.name, setting.value, setting.scope) == ("NCCL_P2P_LEVEL", "SYS", scope)


def test_the_file_is_told_by_its_own_path():
    (found,) = nccl_conf.parse(replace(section("nccl-conf", "NCCL_P2P_DISABLE=1\n"), source="/etc/nccl.conf"))
    assert isinstance(found, Settings) and found.settings[0].scope == "/etc/nccl.conf"


def test_a_file_of_nccl_is_no_shell():
    text = 'NCCL_P2P_LEVEL="SYS"\nexport NCCL_DEBUG=INFO\nNCCL_IB_HCA = mlx5\nNCCL_ALGO=Ring\nNCCL_ALGO=Tree\n NCCL_PROTO=LL\n'
    *lost, found = nccl_conf.parse(replace(section("nccl-conf", text), source="/etc/nccl.conf"))
    # Quotes belong to the value, the first line of a name wins, blanks and `export` make another name.
    assert [(s.name, s.value) for s in found.settings] == [("NCCL_P2P_LEVEL", '"SYS"'), ("NCCL_ALGO", "Ring")]
    assert [loss.fact for loss in lost] == ["the setting NCCL_DEBUG", "the setting NCCL_IB_HCA", "the setting NCCL_PROTO"]
    (shell,) = nccl_conf.parse(section("nccl-conf", text, "env"))
    assert {s.name: s.value for s in shell.settings}["NCCL_ALGO"] == "Tree"
    indented = section("nccl-conf", "    # tuned\n    NCCL_ALGO=Ring\n", "cat /etc/nccl.conf")
    (pasted,) = nccl_conf.parse(indented)
    assert pasted.settings[0].value == "Ring"


def test_a_file_of_nccl_cut_in_its_last_value_loses_it():
    found = list(nccl_conf.parse(replace(section("nccl-conf", "NCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5 "), source="/etc/nccl.conf")))
    assert [s.name for s in found[-1].settings] == ["NCCL_DEBUG"] and found[0].fact == "the value of NCCL_IB_HCA"


def test_a_command_line_is_no_setting_of_the_host():
    """It is one of the run whose output stands below it, and of no other."""
    assert [section.kind for section in recognise("NCCL_DEBUG=INFO python train.py\n")] == ["launch"]


# --- RDMA ports


def test_ibstat():
    nics = output("ibstat/two-adapters.txt").get(Nics)
    assert nics.states_read
    assert [(n.name, n.port, n.state, n.rate_gbps, n.link_layer) for n in nics] == [
        ("mlx5_0", 1, "active", 400.0, "InfiniBand"),
        ("mlx5_10", 1, "down", 10.0, "InfiniBand"),
    ]


def test_the_better_port_of_two_counts():
    (nic,) = output("ibstat/devinfo-verbose.txt").get(Nics)
    assert (nic.name, nic.port, nic.state, nic.rate_gbps, nic.link_layer) == ("mlx5_2", 2, "active", 100.0, "Ethernet")


def test_ibstatus():
    (nic,) = output("ibstat/ibstatus.txt").get(Nics)
    assert (nic.name, nic.port, nic.state, nic.rate_gbps) == ("mlx5_0", 1, "active", 200.0)


@pytest.mark.parametrize(("word", "state"), [("Initializing", "init"), ("Armed", "armed"), ("Down", "down"), ("Gone", None)])
def test_port_states(word, state):
    (nic,) = read(f"CA 'mlx5_0'\n\tPort 1:\n\t\tState: {word}\n\t\tRate: 100\n").get(Nics)
    assert nic.state == state


# --- PyTorch's report


def test_collect_env():
    got = output("collect-env/h100x2-torch.txt")
    assert got.get(Driver).entry.version == "550.90.07"
    assert [(g.index, g.name) for g in got.get(Gpus)] == [(0, "NVIDIA H100 80GB HBM3"), (1, "NVIDIA H100 80GB HBM3")]
    assert not got.get(Gpus).complete
    versions = got.get(Software).versions
    assert versions == {"torch": "2.6.0+cu124", "cuda": "12.4", "nccl": "2.21.5", "pynvml": "11.5.0", "triton": "3.2.0"}
    assert (got.get(Cpu).entry.sockets, [n.cpus for n in got.get(Numa)]) == (2, ["0-47", "48-95"])


def test_collect_env_in_vllms_padded_form():
    text = "PyTorch version              : 2.7.0+cu128\nCUDA used to build PyTorch   : 12.8\nGPU models and configuration : GPU 0: NVIDIA H200\nGPU 1: NVIDIA H200\n\nNvidia driver version        : 570.86.15\n"
    got = read(text)
    assert got.get(Driver).entry.version == "570.86.15"
    assert [(g.index, g.name) for g in got.get(Gpus)] == [(0, "NVIDIA H200"), (1, "NVIDIA H200")]
    assert got.get(Software).versions["torch"] == "2.7.0+cu128"


def test_collect_env_without_a_driver():
    got = read("PyTorch version: 2.6.0+cpu\nCUDA used to build PyTorch: None\nGPU models and configuration: No CUDA\nNvidia driver version: No CUDA\n")
    assert got.get(Driver) is None and got.get(Gpus) is None
    assert got.get(Software).versions == {"torch": "2.6.0+cpu"}


@pytest.mark.parametrize("kind", ["lscpu", "numactl-h", "df", "ulimit", "lsmod", "nccl-conf", "ibstat", "collect-env"])
def test_nothing_readable_is_said_so(kind):
    with pytest.raises(Unparsable):
        parse(kind, "nothing of it here\n")


# --- what NCCL says of a setting, quoted by itself


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("NCCL_P2P_LEVEL set by environment to LOC", {"NCCL_P2P_LEVEL": "LOC"}),
        ("NCCL_P2P_DISABLE set by environment to 1.", {"NCCL_P2P_DISABLE": "1"}),
        ("NCCL_P2P_LEVEL set by environment to LOC was the reason", {}),
        ("see that NCCL_P2P_LEVEL set by environment to LOC", {}),
    ],
)
def test_the_words_of_nccl_of_a_setting(line: str, settings: dict[str, str]) -> None:
    found = read(f"I see the following:\n```\n{line}\n```\nPlease unset it.\n").get(Settings)
    assert {s.name: s.value for s in found or ()} == settings


def test_the_versions_that_nvidia_smi_prints() -> None:
    got = read("NVIDIA-SMI version  : 595.58.03\nNVML version        : 595.58\nDRIVER version      : 595.58.03\nCUDA Version        : 13.2\n").get(Driver)
    assert (got.entry.version, got.entry.cuda_version) == ("595.58.03", "13.2")


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA A40"])
def test_the_dots_of_a_program_belong_to_no_name(name: str) -> None:
    assert [g.name for g in read(f"Burning for 60 seconds.\nGPU 0: {name} ...\nGPU 1: {name} ...\n").get(Gpus)] == [name, name]
