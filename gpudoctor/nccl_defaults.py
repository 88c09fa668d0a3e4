"""What a variable of NCCL must hold so that NCCL does what it does without it.

A line of /etc/nccl.conf cannot be hidden from NCCL: no variable leaves that file out (NCCL_CONF_FILE, since 2.23, stands in
for the one in the home directory only). But NCCL puts a file's lines into the environment without overwriting what is there,
so a value that means the default does. Each below was read in NCCL's source of the releases from 2.5 to 2.30; a name
that is not here, or has no such value, is left alone and said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.pattern import lazy

# Empty is read as not given: a length is asked for, or no list entry, no known word comes of it.
_EMPTY = frozenset(
    (
        "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_OOB_NET_IFNAME", "NCCL_IB_HCA",
        "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_LAUNCH_MODE", "NCCL_CHECK_MODE", "NCCL_THREAD_THRESHOLDS",
    )
)  # fmt: skip
# name -> (value, first release for which it holds; () for every one that reads the variable)
_WORDS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    # parseList (graph/tuning.cc): all but nothing. Without the variable each algorithm is enabled too.
    "NCCL_ALGO": ("^", ()),
    # Without it LL128 is left to the hardware (2); any list makes that 1 or 0. Since 2.24 an empty one changes nothing, before
    # it means no protocol at all.
    "NCCL_PROTO": ("", (2, 24)),
    "NCCL_SYM_KERNEL": ("^", ()),  # sym_kernels.cc says so itself
    # What is looked for without it (graph/topo.cc); if it is not there, both go on without a file.
    "NCCL_TOPO_FILE": ("/var/run/nvidia-topologyd/virtualTopology.xml", (2, 11)),
    "NCCL_IBVERBS_LIB": ("libibverbs.so", ()),  # the next one it tries (ibvsymbols.cc)
    "NCCL_NETDEVS_POLICY": ("AUTO", ()),
    "NCCL_NET_MERGE_POLICY": ("ALL", ()),
    "NCCL_CTA_POLICY": ("0", ()),
}
# Whatever they hold is taken for a name: of a network, a library, a file, a host.
_NAMES = frozenset(
    (
        "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN",
        "NCCL_ENV_PLUGIN", "NCCL_GRAPH_FILE", "NCCL_HOSTID", "NCCL_COMM_ID",
    )
)  # fmt: skip
_NUMBER = lazy(r"^\s*[+-]?(?:0[xX][0-9a-fA-F]+|\d+)\s*$")
CONF_FILE = (2, 23)  # from here on NCCL_CONF_FILE stands in for ~/.nccl.conf


class NoValue(Exception):
    """There is no value that means the default; the words say why."""


def numbers(version: str | None) -> tuple[int, ...]:
    """`2.28.9` -> (2, 28, 9); () where it is not known."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) if version else ()


def neutral(name: str, value: str, nccl: str | None) -> str:
    """What means the default for this release. Raises NoValue."""
    if name in _EMPTY:
        return ""
    if name in _WORDS:
        word, since = _WORDS[name]
        have = numbers(nccl)
        if have >= since:
            return word
        first = ".".join(str(part) for part in since)
        raise NoValue(f"{name} has a value that means the default from NCCL {first} on only, and this is " + (f"NCCL {nccl}" if have else "an unknown one"))
    if name in _NAMES:
        raise NoValue(f"NCCL takes any value of {name} for a name")
    if _NUMBER.match(value):
        # An empty number counts as not given (ncclLoadParam); 0 says the same of a switch and reads better in a log.
        return "0" if name.endswith("_DISABLE") else ""
    raise NoValue(f"which value of {name} means the default is not known")


def means_default(name: str, value: str) -> bool:
    """Is this a value with which NCCL does what it does without the variable?"""
    if name in _WORDS:
        return value == _WORDS[name][0]
    return value.strip() == "" or name.endswith("_DISABLE") and value.strip() == "0"


_STRTOL = lazy(r"^\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)")


def strtol(value: str) -> int:
    """C's strtol with base 0, as NCCL reads numbers: leading digits count, anything else is 0."""
    found = _STRTOL.match(value)
    if found is None:
        return 0
    sign, digits = found.groups()
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") and set(digits) <= set("01234567") else 10
    return int(digits, base) * (-1 if sign == "-" else 1)
