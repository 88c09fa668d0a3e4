"""What single NCCL variables do to a host. Each rule looks at one matter; meanings are from NCCL's user guide (env.rst)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpudoctor.facts.nccl import Nccl
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.model import CERTAIN, LIKELY, NOTE, POSSIBLE, WARNING, Evidence
from gpudoctor.nccl_defaults import numbers
from gpudoctor.pattern import lazy
from gpudoctor.record import KeyedRecord

_LOCAL = lazy(r"^(?:lo|docker\d*|virbr\d*|veth|br-|cni|flannel|cali|podman)")
# Names PyTorch gave its own switches before 2.2 (they are TORCH_NCCL_… since); NCCL never read them.
_OF_TORCH = frozenset(
    "NCCL_" + n
    for n in (
        "ASYNC_ERROR_HANDLING",
        "BLOCKING_WAIT",
        "DESYNC_DEBUG",
        "ENABLE_TIMING",
        "TRACE_BUFFER_SIZE",
        "DUMP_ON_TIMEOUT",
        "AVOID_RECORD_STREAMS",
        "USE_COMM_NONBLOCKING",
        "NAN_CHECK",
        "ENABLE_MONITORING",
    )
)
# Prefixes under which plugins have variables of their own: not NCCL's to know.
_PLUGINS = (
    "NCCL_OFI_",
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_SHARP_",
    "NCCL_INSPECTOR_",
    "NCCL_UCX_",
    "NCCL_TESTS_",
    "NCCL_EP_",
)


class Around(KeyedRecord):
    """What of the host decides whether a variable does harm."""

    pairs: Pairs | None
    nics: Nics | None
    nvlink: bool
    one_host: bool = False  # what NCCL says of the job: all its ranks run here
    release: tuple[int, ...] = ()  # of NCCL, where one is known

    @property
    def rdma(self) -> bool:
        return self.nics is not None and bool(self.nics.nics)


def on_one_host(nccl: Nccl | None) -> bool:
    """As far as NCCL counts the nodes, there is one in every communicator."""
    return {c.nnodes for c in nccl or () if c.nnodes is not None} == {1}


def release_of(nccl: Nccl | None, installed: str | None = None) -> tuple[int, ...]:
    """The one release of NCCL that ran, else the installed one; () where several ran or none is known."""
    ran = {c.version for c in nccl or () if c.version is not None}
    return numbers(ran.pop()) if len(ran) == 1 else () if ran else numbers(installed)


class Advice(KeyedRecord):
    """What a rule has to say. `then`: what removing it brings; None: not advised, the site may want it so."""

    setting: Setting
    severity: str
    words: str
    then: str | None = None
    cost: str | None = None
    confidence: str = CERTAIN
    evidence: tuple[Evidence, ...] = ()
    verify: str | None = None


def _one(setting: Setting | None) -> bool:
    return setting is not None and setting.value.strip() == "1"


def _whole(setting: Setting | None) -> int | None:
    return int(setting.value) if setting is not None and re.fullmatch(r"\s*\d{1,9}\s*", setting.value) else None


def shm_off(settings: Settings, around: Around) -> Iterator[Advice]:
    """Shared memory switched off: what does not go peer to peer goes over TCP."""
    setting = settings.get("NCCL_SHM_DISABLE")
    if setting is None or not _one(setting):
        return
    paths = [p.path for p in around.pairs or ()]
    direct = bool(paths) and all(p == "NVL" for p in paths)
    words = (
        "shared memory is off, so a pair that cannot use peer to peer goes through the network stack inside the host."
    )
    if direct:
        words = "shared memory is off. All pairs have NVLink and do not need it unless peer to peer fails."
    yield Advice(
        setting=setting,
        severity=NOTE if direct else WARNING,
        words=words,
        then="NCCL then falls back to /dev/shm and not to TCP.",
        cost=None if direct else "3 instead of 28 GB/s all-reduce, measured on two H200 with peer to peer off",
    )


def ib_off(settings: Settings, around: Around) -> Iterator[Advice]:
    """RDMA switched off on a host that has adapters."""
    if not around.rdma or around.nics is None:
        return
    evidence = (around.nics.nics[0].at("name"),)
    words = f"the host has {len(around.nics.nics)} RDMA adapters, and NCCL does not use them: traffic between hosts goes over TCP."
    disable, net = settings.get("NCCL_IB_DISABLE"), settings.get("NCCL_NET")
    if disable is not None and _one(disable):
        yield Advice(
            setting=disable, severity=WARNING, words=words, then="NCCL then uses InfiniBand or RoCE.", evidence=evidence
        )
    elif net is not None and net.value.strip().lower() == "socket":
        yield Advice(
            setting=net, severity=WARNING, words=words, then="NCCL then uses InfiniBand or RoCE.", evidence=evidence
        )


def hca_filter(settings: Settings, around: Around) -> Iterator[Advice]:
    """NCCL_IB_HCA: `^` excludes, `=` means exact names, else prefixes; ports follow a colon."""
    setting = settings.get("NCCL_IB_HCA")
    devices = [n.device for n in around.nics or () if n.device]
    if setting is None or around.nics is None or not devices or len(devices) < len(around.nics.nics):
        return
    listed = setting.value.strip()
    exclude = listed.startswith("^")
    exact = listed.lstrip("^").startswith("=")
    names = [w.strip().split(":")[0] for w in listed.lstrip("^=").split(",") if w.strip()]
    hit = [d for d in devices if any(d == n if exact else d.startswith(n) for n in names)]
    left = [d for d in devices if d not in hit] if exclude else hit
    if not left:
        yield Advice(
            setting=setting,
            severity=WARNING,
            words=f"it leaves none of this host's RDMA adapters ({', '.join(devices[:8])}): NCCL goes over TCP.",
            then="NCCL then takes all adapters; or name those of this host.",
            evidence=(around.nics.nics[0].at("device"),),
        )


def interface(settings: Settings, around: Around) -> Iterator[Advice]:
    """Bootstrap bound to an interface that no other host can reach. A job on one host needs no other."""
    if around.one_host:
        return
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"):
        setting = settings.get(name)
        if setting is None or setting.value.startswith("^"):
            continue
        names = [w.strip().lstrip("=") for w in setting.value.split(",") if w.strip()]
        if names and all(_LOCAL.match(n) for n in names):
            yield Advice(
                setting=setting,
                severity=WARNING,
                words="this interface does not leave the host: a job over several hosts cannot connect its ranks.",
                then="Or name the interface that the hosts share (ip -br addr shows them).",
                confidence=LIKELY,
            )


def gdr_off(settings: Settings, around: Around) -> Iterator[Advice]:
    """GPUDirect RDMA switched off."""
    setting = settings.get("NCCL_NET_GDR_LEVEL")
    if setting is None or setting.value.strip() not in ("LOC", "0"):
        return
    yield Advice(
        setting=setting,
        severity=WARNING if around.rdma else NOTE,
        words="GPUDirect RDMA is off: traffic between hosts is copied through host memory."
        if around.rdma
        else "GPUDirect RDMA is off; no RDMA adapter was seen here.",
        then="NCCL then uses GPUDirect where GPU and NIC share a switch.",
    )


def channels(settings: Settings, around: Around) -> Iterator[Advice]:
    """Fewer channels than NVLink needs."""
    for name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS"):
        setting = settings.get(name)
        count = _whole(setting)
        if setting is None or count is None or not 0 < count <= 16:
            continue
        harm = around.nvlink and count < 4
        yield Advice(
            setting=setting,
            severity=WARNING if harm else NOTE,
            words=f"at most {count} channels: "
            + (
                "too few to fill NVLink."
                if harm
                else "lowers what can be expected on NVLink; over PCIe few are enough."
            ),
            then="NCCL then chooses the number itself." if harm else None,
            cost="with 16 channels 289 instead of 347 GB/s, measured on two H200; fewer cost more"
            if around.nvlink
            else None,
        )


def pinned(settings: Settings, around: Around) -> Iterator[Advice]:
    """Protocol, algorithm or topology taken out of NCCL's hands."""
    proto = settings.get("NCCL_PROTO")
    if proto is not None:
        only_ll = {w.strip().upper() for w in proto.value.split(",")} == {"LL"}
        yield Advice(
            setting=proto,
            severity=WARNING if only_ll else NOTE,
            words="only the low-latency protocol LL is left: half of every byte is flags, so large messages get at most half the bandwidth."
            if only_ll
            else "the protocol is pinned; NCCL's guide advises against it but for hunting a bug.",
            then="NCCL then chooses by message size." if only_ll else None,
            cost="at most half the bandwidth of large messages" if only_ll else None,
        )
    for name, words in (
        ("NCCL_ALGO", "the algorithm is pinned: right for one size and operation, often wrong for the others."),
        (
            "NCCL_TOPO_FILE",
            "NCCL takes the topology from this file and not from the system; a file of another machine misleads it.",
        ),
        ("NCCL_GRAPH_FILE", "NCCL takes rings and trees from this file; one of another machine misleads it."),
    ):
        setting = settings.get(name)
        if setting is not None and setting.value.strip():
            if setting.value.strip().startswith("^"):
                words = "NCCL chooses among the algorithms that are left; what was kept out is missed where it is the best."
            yield Advice(setting=setting, severity=NOTE, words=words)


def lowered(settings: Settings, around: Around) -> Iterator[Advice]:
    """Switches a site may have set with intent: named, never advised against."""
    nvls = settings.get("NCCL_NVLS_ENABLE")
    if nvls is not None and nvls.value.strip() == "0":
        yield Advice(
            setting=nvls,
            severity=NOTE,
            words="reduction inside the NVSwitch (NVLS) is off, which lowers what can be expected on Hopper and later boards with NVSwitch.",
        )
    ignore = settings.get("NCCL_IGNORE_DISABLED_P2P")
    if ignore is not None and _one(ignore):
        yield Advice(
            setting=ignore,
            severity=NOTE,
            words="NCCL no longer says when the driver refuses peer to peer between GPUs.",
        )
    size = settings.get("NCCL_BUFFSIZE")
    count = _whole(size)
    if size is not None and count is not None and 0 < count < 1 << 20:
        yield Advice(
            setting=size,
            severity=NOTE,
            words="buffers under 1 MiB (the default is 4 MiB) cost bandwidth of large messages.",
            confidence=LIKELY,
        )


def ineffective(settings: Settings, around: Around) -> Iterator[Advice]:
    """Values and names that NCCL passes over without a word."""
    disable = settings.get("NCCL_P2P_DISABLE")
    if disable is not None and disable.value.strip() not in ("0", "1", ""):
        yield Advice(setting=disable, severity=NOTE, words="does nothing: only the value 1 switches peer to peer off.")
    level = settings.get("NCCL_P2P_LEVEL")
    if level is not None and not level.value[:1].isdigit() and level.value not in _LEVEL_WORDS:
        yield Advice(
            setting=level, severity=NOTE, words=f"is ignored: NCCL knows {', '.join(_LEVEL_WORDS)}, in capitals."
        )
    timeout = settings.get("NCCL_TIMEOUT")
    if timeout is not None:
        yield Advice(
            setting=timeout,
            severity=NOTE,
            words="is no NCCL variable: PyTorch takes it as init_process_group(timeout=…), InfiniBand's is NCCL_IB_TIMEOUT.",
        )
    for setting in settings:
        name = setting.name
        if not name.startswith("NCCL_") or name == "NCCL_TIMEOUT" or name in _OF_TORCH or name.startswith(_PLUGINS):
            continue
        if " set by environment to " in str(setting.at("value").value):  # what echoes it reads it
            continue
        from gpudoctor.nccl_variables import meant, unread, variables

        passed_over = unread(name, around.release)
        if passed_over is not None:
            yield Advice(setting=setting, severity=NOTE, words=f"does nothing here: it {passed_over}.")
        elif name not in variables():
            # Newer releases and plugins bring names of their own: said only where a known one is nearly the same.
            near = meant(name)
            if near:
                yield Advice(
                    setting=setting,
                    severity=NOTE,
                    words=f"NCCL knows no such variable and ignores it; {near} may be meant.",
                    confidence=POSSIBLE,
                )


_LEVEL_WORDS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")

Rule = Callable[[Settings, Around], Iterator[Advice]]
RULES: tuple[Rule, ...] = (shm_off, ib_off, hca_filter, interface, gdr_off, channels, pinned, lowered, ineffective)
