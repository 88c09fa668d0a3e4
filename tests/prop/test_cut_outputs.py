"""Cut every output at every byte, and feed noise: a part may say less than the whole, never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.base import Entry, Fact, Loss
from gpudoctor.facts.gpu import Driver, Gpus
from gpudoctor.facts.join import join
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Cpu, Limits, Modules, Numa, Platform, Settings, Shm, Software
from gpudoctor.facts.topology import Nics, NvLinks, Pairs
from gpudoctor.read.section import Unparsable
from tests.support import FIXTURES, parse, recognise

OUTPUTS = FIXTURES / "outputs"
KINDS = ("smi-topo", "smi-nvlink", "smi-table", "smi-csv", "lscpu", "numactl-h", "df", "ulimit", "lsmod", "ibstat", "collect-env")
SMALL = [
    ("proc-nvidia", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version:  gcc version 12.3.0\n"),
    ("proc-nvidia", "Model: \t\t Tesla V100-SXM2-32GB\nGPU UUID: \t GPU-00000000-0000-0000-0000-000000000007\nBus Location: \t 0000:1a:00.0\n"),
    ("nccl-conf", "# tuned\nNCCL_P2P_LEVEL=SYS\nexport NCCL_SOCKET_IFNAME=\"eth0,eth1\"\nCUDA_VISIBLE_DEVICES=0,1,2,3\n"),
    ("df", "Filesystem     1K-blocks  Used Available Use% Mounted on\nshm                65536    12     65524   1% /dev/shm\n"),
    ("df", "Filesystem     Type  1B-blocks Used Available Use% Mounted on\ntmpfs          tmpfs  67108864    0  67108864   0% /dev/shm\n"),
    ("shm-mount", "shm on /dev/shm type tmpfs (rw,nosuid,nodev,noexec,relatime,size=65536k,inode64)\n"),
    ("shm-mount", "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k,inode64 0 0\n"),
    ("shm-mount", '            "IpcMode": "private",\n            "ShmSize": 67108864,\n'),
    ("ulimit", "Limit                     Soft Limit           Hard Limit           Units     \n"
     "Max stack size            8388608              unlimited            bytes     \n"
     "Max locked memory         65536                65536                bytes     \n"),
    ("smi-nvlink", "GPU 10: Tesla V100-SXM2-32GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
     "         Link 0: 25.781 GB/s\n         Link 10: <inactive>\n         Link 3: Sleep\n"
     "         Links 0-2, 14-15: Replay/Recovery/CRC Errors: 104\n"
     "GPU 11: Tesla V100 (UUID: GPU-00000000-0000-0000-0000-000000000002)\n"
     "NVML: Unable to retrieve NVLink information as all links are inactive\n"),
    ("smi-topo", "\tGPU0\tGPU1\tGPU2\tmlx5_1\tmlx5_10\tCPU Affinity\tNUMA Affinity\n"
     "GPU0\t X \tNV1\tNV2\tSOC\tPIX\t10-23,48-71\t0,3-9,11-17\n"
     "GPU1\tNV1\t X \tNV12\tSOC\tPIX\t10-23\t1\nGPU2\tNV2\tNV12\t X \tSOC\tPIX\t10-23\t10\n"),
]  # fmt: skip
SAMPLES = [(kind, path.name, path.read_text()) for kind in KINDS for path in sorted((OUTPUTS / kind).glob("*.txt")) if path.name != "help.txt"]
SAMPLES += [(kind, f"text {n}", text) for n, (kind, text) in enumerate(SMALL)]
# Statements about the listing itself, which a cut must change: whole lists, links that the listing leaves out.
ABOUT_THE_LIST = {"origin", "elided", "complete", "states_read", "attached"}


def statements(facts: list[Fact | Loss]) -> Iterator[tuple[Any, ...]]:
    """Everything that facts claim, one value each."""
    store = join(FactStore(None, facts))
    for single in (Cpu, Driver, Limits, Platform, Shm):
        found: Any = store.get(single)
        yield from _of(single.__name__, found.entry if found else None)
    for gpu in store.get(Gpus) or ():
        yield from _of(f"gpu {gpu.index if gpu.index is not None else gpu.bdf}", gpu)
    links = store.get(NvLinks)
    for link in links or ():
        yield from _of(link.subject, link)
    for about in links.gpus if links else ():
        yield from _of(f"nvlinks of {about.gpu}", about)
    for pair in store.get(Pairs) or ():
        yield from _of(pair.subject, pair)
    nics = store.get(Nics)
    for nic in nics or ():
        yield from _of(nic.name, nic)
    for path in nics.paths if nics else ():
        yield ("nic path", path.gpu, path.nic, path.path)
    for node in store.get(Numa) or ():
        yield from _of(f"node {node.id}", node)
    for setting in store.get(Settings) or ():
        yield ("setting", setting.name, setting.value)
    for holder in (store.get(Modules), store.get(Software)):
        if holder is not None:
            yield from ((type(holder).__name__, *item) for item in getattr(holder, "loaded", getattr(holder, "versions", {})).items())


def _of(what: str, entry: Entry | None) -> Iterator[tuple[Any, ...]]:
    for name in entry._fields if entry is not None else ():
        value = getattr(entry, name)
        if name in ABOUT_THE_LIST or value is None:
            continue
        if name in ("counters", "samples"):  # a cut leaves the first of them
            yield from ((what, name, place, item) for place, item in enumerate(value))
        else:
            yield (what, name, value)


def said(kind: str, text: str) -> set[tuple[Any, ...]]:
    try:
        return set(statements(parse(kind, text)))
    except Unparsable:
        return set()


@pytest.mark.parametrize(("kind", "name", "text"), SAMPLES, ids=[f"{kind}: {name}" for kind, name, _ in SAMPLES])
def test_cut_at_every_byte(kind, name, text):
    whole = said(kind, text)
    assert whole, "a sample that says nothing tests nothing"
    # The long samples repeat themselves: every byte of the first 3,000 and of the last 1,500, every third between.
    ends = [n for n in range(len(text)) if n < 3000 or n > len(text) - 1500 or n % 3 == 0]
    for end in ends:
        extra = said(kind, text[:end]) - whole
        # A matrix that ends right after the legend's PIX line is what `topo -mp` prints: its path then says less.
        extra = {s for s in extra if s[1] != "pcie_only"}
        if name == "l40sx2-loop-units.txt":
            extra = {s for s in extra if s[1] != "samples"}  # two rows make samples of what one row did not
        assert not extra, (end, text[max(0, end - 80) : end], extra)


@pytest.mark.parametrize(("kind", "name", "text"), SAMPLES, ids=[f"{kind}: {name}" for kind, name, _ in SAMPLES])
def test_recognised_as_what_it_is(kind, name, text):
    kinds = [s.kind for s in recognise(text)]
    assert kinds[0] == kind, kinds
    assert set(kinds) <= {kind, *({"lscpu"} if kind == "collect-env" else ()), *({"smi-failure"} if kind == "smi-table" else ())}


NOISE = st.lists(
    st.one_of(
        st.text(alphabet="GPUNICXV0123456789 \t|:,.=-/()[]<>abcdefLinkErrors", max_size=60),
        st.sampled_from([line for _, _, text in SAMPLES for line in text.splitlines()[:12]]),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(NOISE, st.booleans())
def test_noise_never_breaks_a_parser(lines, ended):
    text = "\n".join(lines) + ("\n" if ended else "")
    for kind in {*KINDS, "nccl-conf"}:
        try:
            list(statements(parse(kind, text or "x")))
        except Unparsable as error:
            assert str(error)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400) | NOISE.map(lambda lines: "\n".join(lines).encode()))
def test_any_bytes_are_cut_into_sections_in_order(data):
    sections = recognise(data)
    for section in sections:
        assert section.lines or section.read is not None  # NCCL's own lines are read in passing and not kept
        numbers = [line.number for line in section]
        assert numbers == sorted(numbers)
