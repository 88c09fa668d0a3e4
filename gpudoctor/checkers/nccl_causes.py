"""Catalogue entries of what only NCCL's log shows, and the facts of the host that it is held against."""

from __future__ import annotations

from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.topology import Pairs
from gpudoctor.model import Cause

# What the questions in nccl_view read; a checker that asks them lists them all.
VIEW_FACTS = (Gpus, Pairs)
_LOG = "NCCL_DEBUG=INFO output of every rank"

GDR_OFF = Cause(
    "GD605", "gdr-off", "Traffic between hosts does not use GPUDirect RDMA", "warning",
    "With GPUDirect RDMA the network adapter reads and writes GPU memory itself; without it every byte is copied through host "
    "memory, which costs bandwidth, latency and CPU. NCCL needs the nvidia_peermem module or DMA-BUF, and a GPU and an adapter "
    "near each other (PXB, from 2.29 P2C). The proof that a connection uses it is the suffix /GDRDMA; the line `GPU Direct RDMA "
    "Enabled` only says that the adapter could. Consumer cards have no GPUDirect RDMA.",
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET; lsmod | grep nvidia_peermem",
    "Load nvidia_peermem (or use a driver and kernel with DMA-BUF), give containers /dev/infiniband, and look at ACS and the IOMMU.",
)  # fmt: skip
SOCKET_FALLBACK = Cause(
    "GD606", "socket-fallback", "NCCL goes over TCP", "within a host: error; between hosts although RDMA devices are listed: warning",
    "Inside a host NCCL takes TCP only where neither peer to peer nor shared memory is possible: separate containers, both switched "
    "off, different host names. Measured on two H200: 3 GB/s against 328 over NVLink and 28 over shared memory. Between hosts TCP is "
    "right where there is no RDMA adapter; where InfiniBand or RoCE is there, a container without /dev/infiniband, a missing "
    "libibverbs or NCCL_IB_DISABLE=1 is the usual reason. `NET/Socket : Using eth0` alone says nothing: it names candidates.",
    _LOG, "Share host name, /dev/shm and network between the processes of one host; let NCCL see the RDMA adapters.",
)  # fmt: skip
P2P_NOT_USED = Cause(
    "GD607", "p2p-not-used", "Two GPUs that could use peer to peer do not", "NVLink pair: error; where peer to peer is impossible: note; else warning",
    "NCCL chose shared memory or the network between two GPUs of one host whose driver, part or NVLink would allow peer to peer. A "
    "setting, a path farther than NCCL's default (since 2.23 PXB, on AMD with two GPUs SYS; before that SYS on AMD and PXB on "
    "Intel), separate containers, or a refusal by the driver are the reasons. `P2P` in the log does not tell NVLink from PCIe.",
    "NCCL_DEBUG=INFO (the `via` lines); nvidia-smi topo -m; nvidia-smi topo -p2p r",
    "Remove the setting; set NCCL_P2P_LEVEL to the pair's path (PHB, SYS) and measure; share IPC and host name.",
)  # fmt: skip
NO_INTERFACE = Cause(
    "GD608", "no-interface", "NCCL finds no network interface to start with", "error",
    "Even on one host the ranks find each other over a socket. NCCL_SOCKET_IFNAME is a list of name prefixes (`=` asks for the "
    "exact name, `^` excludes); if none is up, init ends. Without the variable NCCL takes ib*, then anything but lo and docker*.",
    "NCCL_DEBUG=WARN; ip -br addr", "Unset the variable, or name an interface that is up on every host.",
)  # fmt: skip
DUPLICATE_GPU = Cause(
    "GD609", "duplicate-gpu", "Two ranks use the same GPU", "error",
    "NCCL allows one rank a GPU. Two ranks with one bus id on one host mean that the program did not choose its device (every "
    "process takes 0), that more ranks run than GPUs are visible, or that two MIG slices of one GPU were given out (from 2.30 "
    "NCCL_MULTI_RANK_GPU_ENABLE=1 allows it).",
    _LOG, "torch.cuda.set_device(local_rank) before the first collective; as many ranks as GPUs.",
)  # fmt: skip
RANK_MISMATCH = Cause(
    "GD610", "rank-mismatch", "The ranks do not agree", "error",
    "All ranks of a communicator must have one idea of its size, of the settings that choose algorithms and transports, of the "
    "topology, and must call the same collectives with the same sizes. NCCL checks little of it: different NCCL_ALGO or NCCL_PROTO "
    "hang the first collective, NCCL_P2P_DISABLE on one rank only crashes, other sizes or another collective hang or give "
    "garbage without a word (all seen with 2.28.9). Settings that name local things (interfaces, adapters, files) may differ.",
    _LOG, "Start every rank with the same environment, image and world size.",
)  # fmt: skip
PEER_DIED = Cause(
    "GD611", "peer-died", "Another rank went away", "error",
    "The connection to a rank was closed while it was needed: its process ended, was killed (out of memory, scheduler) or crashed. "
    "The rank that complains is the victim. Over peer to peer and shared memory a dead peer shows no line at all, only a hang.",
    "the log of the rank that ended first; dmesg (Out of memory, Xid)", "Find why that rank ended; the others follow.",
)  # fmt: skip
NETWORK_ERROR = Cause(
    "GD612", "network-error", "The network between ranks fails", "error",
    "A connection could not be made (no route, refused, timed out) or an RDMA transfer failed. Completion status 12 means that no "
    "answer came after all retries: cable, switch, routing, wrong GID, lossy RoCE, or a dead peer; 4, 10 and 11 mean that memory "
    "could not be reached (GPUDirect, ACS, IOMMU); 5 (flushed) only follows an earlier error.",
    f"{_LOG}; ibstat; ib_write_bw between the two adapters", "Test the path between the two adapters or addresses outside NCCL.",
)  # fmt: skip
SPLIT_HOST = Cause(
    "GD613", "split-host", "Ranks of one machine are counted as several nodes", "error",
    "NCCL takes ranks for one node when host name and boot id (or NCCL_HOSTID) are equal, and connects them directly only over a "
    "shared /dev/shm. Two containers with different host names or their own /dev/shm, or peer to peer and shared memory both "
    "switched off, turn one machine into several: traffic then takes the network stack inside the machine.",
    _LOG, "One host name (--uts=host) or one NCCL_HOSTID, and one /dev/shm (--ipc=host) for all containers of a machine.",
)  # fmt: skip
CUDA_ERROR = Cause(
    "GD615", "cuda-error", "A CUDA call fails", "error",
    "The first complaint is a failing CUDA call that no more specific cause explains. An illegal access or launch failure comes "
    "from a kernel that ran before; out of memory means that the program asked for more than was free, or left nothing for NCCL's buffers; many follow an Xid.",
    f"{_LOG}; dmesg | grep -i xid", "Look for an Xid, then run with CUDA_LAUNCH_BLOCKING=1.",
)  # fmt: skip
