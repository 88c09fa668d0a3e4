"""The host around the GPUs: processors, limits, settings, containers, modules, jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from gpudoctor import cpulist
from gpudoctor.facts.base import Contradiction, Entry, Fact, merge_entry, merge_keyed


class NumaNode(Entry):
    """One NUMA node."""

    STABLE: ClassVar[tuple[str, ...]] = ("cpus",)

    id: int
    cpus: str | None = None  # list text; "" for a node without CPUs (Grace GPU memory, CXL)
    memory_mib: int | None = None


class Numa(Fact):
    """The NUMA nodes of the host."""

    label: ClassVar[str] = "the NUMA layout"
    hint: ClassVar[str | None] = "numactl -H"

    nodes: tuple[NumaNode, ...]

    def __iter__(self) -> Iterator[NumaNode]:
        return iter(self.nodes)

    def with_cpus(self) -> tuple[NumaNode, ...]:
        """Nodes one can bind to; a node without CPUs (Grace's GPU memory) is none."""
        return tuple(n for n in self.nodes if n.cpus)

    def node_of(self, cpus: frozenset[int] | None) -> int | None:
        """The one node that has all these CPUs; None where they span several, or belong to none."""
        homes = {n.id for n in self.nodes if cpus and (cpulist.parse(n.cpus) or frozenset()) & cpus}
        return homes.pop() if len(homes) == 1 else None

    def cpus_of(self, node: int | None) -> frozenset[int]:
        """The CPUs of one node; empty where the node is not known."""
        return next((cpulist.parse(n.cpus) or frozenset() for n in self.nodes if n.id == node), frozenset())

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Numa:
        nodes = merge_keyed((n for p in parts for n in p.nodes), lambda n: n.id, lambda n: f"NUMA node {n.id}", say)
        return Numa(tuple(sorted(nodes, key=lambda n: n.id)))


class CpuEntry(Entry):
    """The processor. `online` is list text."""

    vendor: str | None = None  # GenuineIntel, AuthenticAMD, ARM
    model_name: str | None = None
    family: int | None = None
    model: int | None = None
    sockets: int | None = None
    architecture: str | None = None
    online: str | None = None


class PlatformEntry(Entry):
    """Where this runs. `vm` True: a hypervisor is below; `container` names its kind."""

    vm: bool | None = None
    hypervisor: str | None = None  # "kvm", "vmware", …
    wsl: bool | None = None
    container: str | None = None  # "docker", "podman", "kubernetes", "lxc", "apptainer"
    uptime_s: float | None = None
    kernel: str | None = None
    cmdline: str | None = None  # kernel command line
    uid: int | None = None


class _Single(Fact):
    """A fact of one entry: later sources fill what earlier ones left open."""

    entry: Any

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Any:
        entry = parts[0].entry
        for part in parts[1:]:
            entry = merge_entry(entry, part.entry, cls.label, say)
        return cls(entry)


class Cpu(_Single):
    """The processor, one for all sockets."""

    label: ClassVar[str] = "the processor"
    hint: ClassVar[str | None] = "lscpu"
    entry: CpuEntry


class Platform(_Single):
    """Bare metal, virtual machine or container, and the kernel."""

    label: ClassVar[str] = "machine, container and kernel"
    hint: ClassVar[str | None] = "gpudoctor capture"
    entry: PlatformEntry


class AffinityEntry(Entry):
    """What this very process may use, hence what a job started from here inherits."""

    cpus: str | None = None  # sched_getaffinity
    mems: str | None = None  # Mems_allowed_list
    cpuset_cpus: str | None = None


class OwnAffinity(_Single):
    """The CPUs and memory nodes of the process that asked."""

    label: ClassVar[str] = "this process's CPU affinity"
    hint: ClassVar[str | None] = "taskset -cp $$"
    entry: AffinityEntry


class ShmEntry(Entry):
    """The /dev/shm that a process sees."""

    size_bytes: int | None = None
    free_bytes: int | None = None
    writable: bool | None = None
    mounted: bool | None = None  # False: /dev/shm is not a mount of its own
    noexec: bool | None = None


class Shm(_Single):
    """Where NCCL puts its buffers when GPUs cannot reach each other."""

    label: ClassVar[str] = "the size of /dev/shm"
    hint: ClassVar[str | None] = "df -B1 /dev/shm"
    entry: ShmEntry


class LimitsEntry(Entry):
    """Soft limits of the process that asked."""

    memlock_bytes: int | None = None
    memlock_unlimited: bool | None = None
    stack_unlimited: bool | None = None


class Limits(_Single):
    """Resource limits that RDMA and large buffers run into."""

    label: ClassVar[str] = "the resource limits"
    hint: ClassVar[str | None] = "ulimit -a"
    entry: LimitsEntry


class Setting(Entry):
    """One NCCL_*, CUDA_* or like setting, from the environment or a config file."""

    name: str
    value: str
    scope: str  # "environment", "/etc/nccl.conf", "~/.nccl.conf"


class Settings(Fact):
    """All settings that NCCL or CUDA may obey, whether or not they do."""

    label: ClassVar[str] = "NCCL's environment and config files"
    hint: ClassVar[str | None] = "env | grep -E '^(NCCL|CUDA|NVIDIA|TORCH)_'; cat /etc/nccl.conf ~/.nccl.conf"

    settings: tuple[Setting, ...]

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def get(self, name: str) -> Setting | None:
        """The one NCCL obeys: the environment wins over the user's file, that over the system's."""
        order = {"environment": 0, "~/.nccl.conf": 1, "/etc/nccl.conf": 2}
        found = [s for s in self.settings if s.name == name]
        return min(found, key=lambda s: order.get(s.scope, 3)) if found else None

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Settings:
        return Settings(
            merge_keyed((s for p in parts for s in p.settings), lambda s: (s.name, s.scope), lambda s: s.name, say)
        )


class Modules(Fact):
    """Loaded kernel modules that matter, with version where they have one ("" where not)."""

    label: ClassVar[str] = "the loaded kernel modules"
    hint: ClassVar[str | None] = "lsmod"

    loaded: Mapping[str, str]
    origin: Any = None  # Evidence
    complete: bool = True  # False: an excerpt, absence proves nothing

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Modules:
        loaded: dict[str, str] = {}
        for part in parts:
            for name, version in part.loaded.items():
                loaded[name] = loaded.get(name) or version
        return Modules(loaded, parts[0].origin, any(p.complete for p in parts))


class IommuEntry(Entry):
    """units: entries of /sys/class/iommu; None when it could not be read."""

    units: int | None = None
    groups: int | None = None
    translating: bool | None = None  # some GPU's or bridge's group has type DMA or DMA-FQ
    mode: str | None = None  # "off", "passthrough", "translating"


class Iommu(_Single):
    """Does an IOMMU stand between devices, and does it translate?"""

    label: ClassVar[str] = "the IOMMU's state"
    hint: ClassVar[str | None] = "ls /sys/class/iommu; cat /proc/cmdline"
    entry: IommuEntry


class Aspm(Fact):
    """The kernel's policy for link power saving; single links may differ."""

    label: ClassVar[str] = "the kernel's ASPM policy"
    hint: ClassVar[str | None] = "cat /sys/module/pcie_aspm/parameters/policy"

    policy: str
    origin: Any = None  # Evidence


class FabricManagerEntry(Entry):
    """The service that sets up NVSwitches."""

    installed: bool | None = None
    active: bool | None = None
    state: str | None = None  # systemd's words: "active (running)", "failed", "inactive (dead)"
    version: str | None = None
    switches: int | None = None  # NVSwitches on the PCI bus or in /proc/driver/nvidia-nvswitch
    refused_driver: str | None = None  # the driver's version with which it says that it will not start
    found_no_switch: bool | None = None  # it says that there is no NVSwitch to set up


class FabricManager(_Single):
    """Is Fabric Manager here, and does it run?"""

    label: ClassVar[str] = "the Fabric Manager service"
    hint: ClassVar[str | None] = "systemctl status nvidia-fabricmanager"
    entry: FabricManagerEntry


class GrantEntry(Entry):
    """What this process was granted: container runtime, cgroup, Slurm, environment."""

    nvidia_visible: str | None = None  # NVIDIA_VISIBLE_DEVICES
    cuda_visible: str | None = None  # CUDA_VISIBLE_DEVICES; "" hides all
    slurm_gpus: str | None = None  # SLURM_JOB_GPUS / SLURM_STEP_GPUS
    device_nodes: tuple[int, ...] | None = None  # minor numbers of /dev/nvidiaN present
    unopenable: tuple[int, ...] | None = None  # of those, the ones this process may not open (cgroup)


class Grant(_Single):
    """The GPUs that container, scheduler and environment leave to a process."""

    label: ClassVar[str] = "which GPUs this process was granted"
    hint: ClassVar[str | None] = "env | grep VISIBLE; ls -l /dev/nvidia*"
    entry: GrantEntry


class JobProcess(Entry):
    """A process that holds a GPU. Fields are None where this user may not read them."""

    pid: int
    name: str | None = None
    gpu_bdf: str | None = None
    gpus: tuple[str, ...] | None = None  # all GPUs it holds, by address
    cpus: str | None = None
    mems: str | None = None
    environment: Mapping[str, str] | None = None  # allowed names only
    container: str | None = None
    shm: ShmEntry | None = None  # of its own mount namespace
    unreadable: str | None = None  # why parts are None


class Jobs(Fact):
    """The processes that hold GPUs."""

    on_request: ClassVar[bool] = True
    label: ClassVar[str] = "the GPU processes now running"
    hint: ClassVar[str | None] = "gpudoctor check --job"

    processes: tuple[JobProcess, ...]

    def __iter__(self) -> Iterator[JobProcess]:
        return iter(self.processes)


class Software(Fact):
    """Installed pieces that must fit together: {"torch": "2.11", "nccl": "2.28.9", "pynvml": "13.0.1"}."""

    label: ClassVar[str] = "the installed software"
    hint: ClassVar[str | None] = "python -m torch.utils.collect_env"

    versions: Mapping[str, str]
    origin: Any = None  # Evidence

    @classmethod
    def merge(cls, parts: list[Any], say: Callable[[Contradiction], None]) -> Software:
        versions: dict[str, str] = {}
        for part in parts:
            versions = {**part.versions, **versions}
        return Software(versions, parts[0].origin)
