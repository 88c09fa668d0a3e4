"""Several outputs in one post that is indented as a whole: each ends where the next begins."""

from __future__ import annotations

import itertools
import textwrap

import pytest

from tests.support import recognise

# Kind -> an output of that kind in its real shape, as short as it can be.
OUTPUTS = {
    "lspci": """\
17:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 145f
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x16
\tKernel driver in use: nvidia
""",
    "lscpu": """\
Architecture:            x86_64
  CPU op-mode(s):        32-bit, 64-bit
CPU(s):                  64
  On-line CPU(s) list:   0-63
Vendor ID:               GenuineIntel
  Model name:            Intel(R) Xeon(R)
Virtualization features:
  Hypervisor vendor:     KVM
NUMA:
  NUMA node(s):          2
  NUMA node0 CPU(s):     0-31
  NUMA node1 CPU(s):     32-63
""",
    "numactl-h": """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3
node 0 size: 1000 MB
node 1 cpus: 4 5 6 7
node 1 size: 1000 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
""",
    "smi-topo": """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tSYS\tPIX\t0-31\t0\t\tN/A
GPU1\tSYS\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
""",
    "smi-q": """\
==============NVSMI LOG==============

Timestamp                           : Thu Feb 20 14:04:14 2025
Driver Version                      : 550.54.15

Attached GPUs                       : 1
GPU 00000000:17:00.0
    Product Name                    : NVIDIA A100-PCIE-40GB
    PCI
        GPU Link Info
            PCIe Generation
                Max                 : 4
                Current             : 4
    Remapped Rows
        Pending                     : No
""",
    "smi-nvlink": """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
""",
    "ibstat": """\
CA 'mlx5_0'
\tCA type: MT4123
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tLink layer: InfiniBand
""",
    "df": """\
Filesystem      Size  Used Avail Use% Mounted on
/dev/sda1       100G   50G   50G  50% /
shm              64M     0   64M   0% /dev/shm
""",
    "lspci-tree": """\
-[0000:00]-+-00.0
           +-01.1-[01]--+-00.0
           |            \\-00.1
           \\-18.7
""",
    "smi-topo (-p2p)": """\
 \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tOK\tX\t

Legend:

  X    = Self
  OK   = Status Ok
""",
    "smi-csv": """\
index, name, pci.bus_id, pcie.link.width.current
0, NVIDIA A100, 00000000:17:00.0, 16
1, NVIDIA A100, 00000000:65:00.0, 16
""",
    "lsmod": """\
Module                  Size  Used by
nvidia_peermem         16384  0
nvidia              56598528  147 nvidia_uvm,nvidia_peermem
""",
    "ulimit": """\
max locked memory           (kbytes, -l) 64
open files                          (-n) 1024
""",
    "nccl-conf": """\
NCCL_DEBUG=INFO
NCCL_P2P_DISABLE=1
NCCL_IB_DISABLE=1
""",
    "collect-env": """\
Collecting environment information...
PyTorch version: 2.6.0+cu124
Is debug build: False
CUDA used to build PyTorch: 12.4
Is CUDA available: True
GPU models and configuration:
GPU 0: NVIDIA GeForce RTX 4070
GPU 1: NVIDIA GeForce RTX 4070

Nvidia driver version: 570.133.20
""",
}


def cut(text: str) -> list[tuple[str, list[str]]]:
    return [(s.kind, [line.text.strip() for line in s.lines if line.text.strip()]) for s in recognise(text)]


@pytest.mark.parametrize("prefix", ["", "    ", "\t", "> "])
@pytest.mark.parametrize("gap", ["", "\n"])
def test_an_output_ends_where_the_next_begins(prefix: str, gap: str) -> None:
    alone = {kind: cut(text) for kind, text in OUTPUTS.items()}
    assert all(len(sections) == 1 for sections in alone.values())
    wrong = []
    for first, second in itertools.permutations(OUTPUTS, 2):
        text = textwrap.indent(OUTPUTS[first] + gap + OUTPUTS[second], prefix, lambda line: True)
        if cut(text) != alone[first] + alone[second]:
            wrong.append((first, second))
    assert wrong == []


def test_a_gpu_of_an_nvlink_list_is_none_of_the_environments_above_it() -> None:
    listed = "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-1111-2222-3333-444444444444)\n\t Link 0: <inactive>\n"
    sections = cut(OUTPUTS["collect-env"] + listed)
    assert [kind for kind, _ in sections] == ["collect-env", "smi-nvlink"]
    assert sections[1][1][0].startswith("GPU 1:")


def test_what_an_output_indents_itself_stays_its_own() -> None:
    block = "17:00.0 3D controller: NVIDIA Corporation Device 20b0\n\tNUMA node: 0\n\tSubsystem: NVIDIA Corporation Device 145f\n\tCapabilities: [78] Express (v2) Endpoint\n"
    assert [(kind, len(lines)) for kind, lines in cut(textwrap.indent(block, "    "))] == [("lspci", 4)]
