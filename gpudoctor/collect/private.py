"""What in an output is private, and what stands for it: patterns, keys and stand-ins. Text only; no files."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import NamedTuple


class Rule(NamedTuple):
    """Where private details of one kind stand. The group `v` of the pattern is the detail itself."""

    kind: str
    pattern: re.Pattern[str]
    private: Callable[[str], bool] = bool
    anywhere: bool = False  # once found, the same word is replaced wherever it stands
    sign: str = ""  # stands in every text that the pattern can match: most rules cost nothing on most texts


_H = "[0-9a-fA-F]"
_VALUE = r"[ \t]{0,60}[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"  # `name: value`, `name=value`, `"name": "value"`
# A dotted quad after one of these is a version (cuDNN 9.1.0.70), not an address.
_VERSION = re.compile(r"(?:version|ver|rev|revision|release|firmware|fw|vbios|build|==|\.so\.?)[\s\"':=(v]{0,6}$|\bv$", re.I)
VERSION_KEYS = re.compile(r"version|software|packages|distributions|vbios|firmware|driver", re.I)


def _serial(text: str) -> bool:
    return len(text) >= 5 and any(c.isdigit() for c in text) and bool(text.strip("0x-"))


def _address4(text: str) -> bool:
    parts = text.split(".")
    return (
        all(int(p) <= 255 and str(int(p)) == p for p in parts)
        and not text.startswith(("127.", "255."))
        and text != "0.0.0.0"
    )


def _address6(text: str) -> bool:
    if text in ("::", "::1") or not any(c.isdigit() for c in text):
        return False
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def _mac(text: str) -> bool:
    return len(set(re.sub(r"[:-]|enx", "", text))) > 1  # not the broadcast or the empty one


def _process(text: str) -> bool:
    return text not in ("", "N/A", "null", "Insufficient Permissions", "[Not Found]") and public_program(text) != text


_PUBLIC = re.compile(
    r"(?:python[\d.]*|Xorg|Xwayland|gnome-shell|nvidia-\S+|nv-\S+|dcgm\S*|kworker\S*|systemd\S*|swapper\S*|migration\S*"
    r"|[a-z_]+_perf(?:_mpi)?|bash|sh|sshd|containerd\S*|dockerd|kubelet|irq/\S+|ray|vllm|torchrun|mpirun|orted|UVM\S*)$"
)


def public_program(command: str) -> str | None:
    """The program's bare name where half the world runs it; None where it may tell whose machine this is."""
    words = command.split()
    base = words[0].rsplit("/", 1)[-1].rstrip(":") if words else ""
    return base if _PUBLIC.match(base) else None


# Tokens that are known by how they begin, as their givers say: GitHub, GitLab, Hugging Face, OpenAI and its like, Slack, AWS,
# NVIDIA, Weights & Biases, JSON Web Tokens.
_TOKENS = (
    *((f"gh{kind}_", rf"gh{kind}_\w{{20,}}") for kind in "pousr"),
    ("github_pat_", r"github_pat_\w{20,}"),
    ("glpat-", r"glpat-[\w-]{16,}"),
    ("hf_", r"hf_[A-Za-z0-9]{20,}"),
    ("sk-", r"sk-[\w-]{20,}"),
    ("xox", r"xox[a-z]-[\w-]{10,}"),
    ("AKIA", r"AKIA[0-9A-Z]{16}"),
    ("ASIA", r"ASIA[0-9A-Z]{16}"),
    ("nvapi-", r"nvapi-[\w-]{20,}"),
    ("wandb_", r"wandb_v\d_\w{20,}"),
    ("eyJ", r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
)

RULES: tuple[Rule, ...] = (
    # First: a command line may hold a home or an address, and is known by what it was before these were replaced.
    Rule("process", re.compile(r"<process_name>(?P<v>[^<]+)</process_name>"), _process, sign="<process_name>"),
    Rule("process", re.compile(r"\bpid='?(?:\d+|<\w+>)'?, name=(?P<v>[^,\n]+)"), _process, sign=", name="),
    Rule("process", re.compile(r"\bComm: (?P<v>\S+)"), _process, sign="Comm: "),
    Rule("process", re.compile(r"\btask=(?P<v>[^,\s]+),pid="), _process, sign="task="),
    Rule("process", re.compile(r"\bKilled process \d+ \((?P<v>[^)\n]+)\)"), _process, sign="Killed process"),
    Rule("process", re.compile(r"\btask (?P<v>\S+):\d+ blocked for more"), _process, sign=" blocked for more"),
    Rule("process", re.compile(r"(?:traps: |(?<!\S))(?P<v>[^\s\[]+)\[\d+\](?=:? (?:segfault|trap|general protection))"), _process),
    Rule("uuid", re.compile(rf"(?<![0-9A-Za-z])(?P<v>{_H}{{8}}(?:-{_H}{{4}}){{3}}-{_H}{{12}})(?![0-9A-Za-z])"), lambda v: bool(v.strip("0-"))),
    Rule("hex32", re.compile(rf"(?<!\w)(?P<v>{_H}{{32}}(?:{_H}{{32}})?)(?!\w)"), lambda v: bool(v.strip("0"))),
    Rule("serial", re.compile(r"<\w*serial\w*>(?P<v>[^<>\s]+)<", re.I), _serial, anywhere=True),
    Rule("serial", re.compile(rf"serial(?:[ _-]?(?:number|num|no\.?))?{_VALUE}(?P<v>[\w-]{{5,}})(?![\w/])", re.I), _serial, anywhere=True),
    Rule("serial", re.compile(r"\[V\w\] Vendor specific: (?P<v>\S{8,})"), _serial, sign="Vendor specific"),
    Rule("serial", re.compile(rf"asset[ _-]?tag{_VALUE}(?P<v>[\w-]{{5,}})", re.I), _serial, anywhere=True),
    Rule("guid", re.compile(rf"guid[^\w\n]{{1,6}}(?P<v>(?:0x)?{_H}{{16}})(?!\w)", re.I), lambda v: bool(v.strip("0x"))),
    Rule("guid", re.compile(rf"(?<![\w:])(?P<v>{_H}{{4}}(?::{_H}{{4}}){{3}})(?![\w:])"), lambda v: bool(v.strip("0:"))),
    Rule("mac", re.compile(rf"(?<![\w:])(?P<v>{_H}{{2}}(?::{_H}{{2}}){{5,19}})(?![\w:])"), _mac),
    Rule("mac", re.compile(rf"(?<![\w-])(?P<v>{_H}{{2}}(?:-{_H}{{2}}){{5,7}})(?![\w-])"), _mac),
    Rule("mac", re.compile(rf"(?<![A-Za-z0-9])(?P<v>enx{_H}{{12}})(?![A-Za-z0-9])"), _mac, sign="enx"),
    Rule("ipv4", re.compile(r"(?<![\w.])(?P<v>\d{1,3}(?:\.\d{1,3}){3})(?!\w|\.\w)"), _address4),
    Rule("ipv6", re.compile(rf"(?<![\w:.])(?P<v>(?:{_H}{{0,4}}:){{2,7}}{_H}{{0,4}})(?!\.?[\w:])"), _address6),
    Rule("host", re.compile(r"(?m)^(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\S{8,32}) (?P<v>[\w.-]+) (?:kernel|systemd|nvidia|sshd|dhclient|NetworkManager)[\w-]*(?:\[\d+\])?:"), anywhere=True),
    Rule("host", re.compile(r"hostname (?:set )?to [<\"']?(?P<v>[\w.-]+)", re.I), anywhere=True),
    Rule("host", re.compile(rf"\b(?:hostname|nodename|HOSTNAME|MASTER_ADDR|SLURMD_NODENAME|NCCL_HOSTID){_VALUE}(?P<v>[A-Za-z][\w.-]*)"), anywhere=True),
    Rule("host", re.compile(r"(?<![\w.-])[\w.-]+@(?P<v>[\w.-]+)(?=[: ](?:~|/)|\])"), anywhere=True, sign="@"),
    Rule("user", re.compile(r"(?<![\w.-])(?P<v>[\w.-]+)@[\w.-]+(?=[: ](?:~|/)|\])"), anywhere=True, sign="@"),
    Rule("user", re.compile(r"/(?:home|Users)/(?P<v>[\w.-]+)"), anywhere=True, sign="/"),
    Rule("user", re.compile(rf"\b(?:user|username|user_name|USER|LOGNAME|SUDO_USER){_VALUE}(?P<v>[A-Za-z_][\w.-]*)"), anywhere=True),
    Rule("mail", re.compile(r"(?<![\w.+-])(?P<v>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"), sign="@"),
    Rule("mail", re.compile(r"Linux version \S+ \((?P<v>[^()@\s]+@[^()\s]+)\)"), sign="Linux version "),  # who built the kernel, and where
    Rule("secret", re.compile(rf"(?:token|passwo?r?d|secret|api[_-]?key|credential)[\w.-]{{0,40}}{_VALUE}(?P<v>[^\s\"'&,;]+)", re.I)),
    # A password may hold a slash or an @: what stands before the last @ of the word goes.
    Rule("secret", re.compile(r"://(?P<v>[^\s/@:\"']*:[^\s\"']{0,400})@"), sign="://"),
    Rule("secret", re.compile(r"(?<![\w-])--?(?:pass|passphrase|pw|pwd|auth|key)[ =](?P<v>[^\s\"'&,;]+)"), sign="-"),
    Rule("secret", re.compile(r"\bBearer (?P<v>[\w.~+/=-]{8,})"), sign="Bearer "),
    Rule("secret", re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<v>[^-]+)"), sign="PRIVATE KEY-----"),
    *(Rule("secret", re.compile(rf"(?<![\w-])(?P<v>{shape})"), sign=sign) for sign, shape in _TOKENS),
)

# Words that are everybody's: as a name they tell nothing, and replacing them would change what an output says.
COMMON = frozenset(
    "root admin administrator nobody daemon user users guest ubuntu debian centos fedora rocky almalinux opc azureuser "
    "ec2-user nvidia test runner jenkins docker kube kubernetes localhost localdomain localhost.localdomain none null "
    "true false unknown default home shared scratch lost+found linux kernel systemd gpu gpus cpu cpus node nodes numa "
    "host hosts server compute worker master head login system device devices driver cuda nccl nvlink nvswitch pci pcie "
    "bridge memory active inactive enabled disabled success completed python bash service fabric fabricmanager".split()
)

_SHAPES = {
    "uuid": re.compile(r"0{8}-0{4}-0{4}-0{4}-[0-9a-f]{12}$"),
    "hex32": re.compile(r"0{24}"),
    "serial": re.compile(r"0{6}\d{7}$"),
    "guid": re.compile(r"(?:0x)?(?:0000:0000:0000:|0{12})"),
    "mac": re.compile(r"(?:enx)?02[:-]?00[:-]?00[:-]?00[:-]?"),
    "ipv4": re.compile(r"(?:192\.0\.2|198\.51\.100|203\.0\.113|198\.1[89]\.\d+)\.\d+$"),
    "ipv6": re.compile(r"2001:db8::[0-9a-f]{1,4}$"),
    "host": re.compile(r"host-[0-9a-f]{6}(?:-\d+)?$"),
    "user": re.compile(r"user\d+$"),
    "mail": re.compile(r"mail\d+@example\.com$"),
    "process": re.compile(r"process-\d+$"),
    "secret": re.compile(r"redacted$"),
}
_DOCUMENTATION = ("192.0.2.", "198.51.100.", "203.0.113.")


def is_stand_in(kind: str, text: str) -> bool:
    """Already replaced, by an earlier capture or by hand: it stays as it is."""
    return bool(_SHAPES[kind].match(text))


def key_of(kind: str, text: str) -> str:
    """Spellings of one thing are one thing."""
    if kind == "mac":
        return re.sub(r"[:-]|^enx", "", text.lower())
    if kind == "guid":
        return text.lower().replace(":", "").removeprefix("0x")
    if kind in ("uuid", "hex32", "ipv6"):
        return text.lower()
    return text


def stand_in(kind: str, number: int, text: str, label: str) -> str:
    """What stands for the number-th detail of its kind, in the form of the text it replaces."""
    if kind == "uuid":
        return f"00000000-0000-0000-0000-{number:012x}"
    if kind == "hex32":
        return f"{number:0{len(text)}x}"
    if kind == "serial":
        return f"{number:013d}"
    if kind == "guid":
        return (
            f"0000:0000:0000:{number:04x}"
            if ":" in text
            else ("0x" if text.startswith("0x") else "") + f"{number:016x}"
        )
    if kind == "mac":
        pairs = f"02:00:00:00:{number >> 8 & 255:02x}:{number & 255:02x}"
        return (
            "enx" + pairs.replace(":", "")
            if text.startswith("enx")
            else pairs.replace(":", "-" if "-" in text else ":")
        )
    if kind == "ipv4":
        block, last = divmod(number - 1, 254)
        if block < len(_DOCUMENTATION):
            return f"{_DOCUMENTATION[block]}{last + 1}"
        return f"198.18.{block - len(_DOCUMENTATION)}.{last + 1}"
    if kind == "ipv6":
        return f"2001:db8::{number:x}"
    if kind == "host":
        return label if number == 1 else f"{label}-{number}"
    return {"user": f"user{number}", "mail": f"mail{number}@example.com", "process": f"process-{number}"}.get(
        kind, "redacted"
    )


def after_version(text: str, start: int) -> bool:
    """Does the word at `start` follow one that announces a version?"""
    return bool(_VERSION.search(text[max(0, start - 24) : start]))


# --- environment variables

_OPEN_PREFIXES = ("NCCL_", "CUDA_", "NVIDIA_", "TORCH_", "NVSHMEM_", "UCX_", "OMP_", "GLOO_", "FI_", "PSM", "LOCAL_", "GROUP_", "ROLE_", "OMPI_COMM_WORLD_", "GPUDOCTOR_")
_OPEN = frozenset(
    "RANK WORLD_SIZE MASTER_ADDR MASTER_PORT PYTORCH_CUDA_ALLOC_CONF LD_LIBRARY_PATH LD_PRELOAD PATH container "
    "SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_GPUS_ON_NODE SLURM_LOCALID SLURM_PROCID SLURM_NTASKS SLURM_NNODES SLURM_CPU_BIND "
    "SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_CPUS_PER_TASK SLURM_JOB_NUM_NODES ROCR_VISIBLE_DEVICES "
    "GPU_DEVICE_ORDINAL PMI_RANK PMI_SIZE PMIX_RANK KUBERNETES_PORT".split()
)
_SECRET_PARTS = frozenset("TOKEN KEY APIKEY SECRET PASSWORD PASSWD PASS CREDENTIAL CREDENTIALS AUTH COOKIE".split())
ENVIRONMENT_KEYS = frozenset(("env", "environ", "environment"))


def open_variable(name: str) -> bool:
    """May the value of this variable be shown?"""
    if _SECRET_PARTS & frozenset(name.upper().split("_")):
        return False
    return name in _OPEN or name.startswith(_OPEN_PREFIXES)
