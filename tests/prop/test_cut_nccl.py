"""NCCL's log cut at every byte, broken at any width: less may be known, never something else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.nccl import Nccl
from gpudoctor.parsers.nccl_log import parse
from gpudoctor.read.recognise import Recogniser
from tests.nccl_logs import job
from tests.support import FIXTURES

LOGS = FIXTURES / "outputs" / "nccl-log"
# A small one of every kind of line, cut at each byte.
SHORT = "\n".join(
    [
        *(line for line in job(2, channels=2)),
        "h:1:2 [0] NCCL INFO Channel 00/0 : 17[7] -> 28[0] [send] via NET/IB/12(5)/GDRDMA/Shared",
        "h:1:2 [0] NCCL INFO Channel 00 : 3[1d000] -> 14[2e000] via direct shared memory",
        "h:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1",
        "h:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth10",
        "h:1:2 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 1048576.",
        "[2026-05-05 06:16:47] h:1:2 [0] init.cc:904 NCCL WARN Duplicate GPU detected : rank 10 and rank 11 both on CUDA device 1d000",
        "h:1:2 [0] NCCL INFO === System : maxBw 370.8 totalBw 370.8 ===",
        "h:1:2 [0] NCCL INFO + PCI[48.0] - GPU/0-60 (0)",
        "h:1:2 [0] NCCL INFO               + NVL[370.8] - NVS/0-0",
        "h:1:2 [0] NCCL INFO AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23} cgaClusterSize 4",
        "h:1:2 [0] NCCL INFO AllGather: 4096 Bytes -> Algo 1 proto 2 time 12.300000",
        "h:1:2 NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
        "h:1:2 [0] NCCL INFO GPU/0-60 :GPU/0-60 (0/5000.0/LOC) GPU/0-70 (2/370.8/NVL)",
        "",
    ]
).encode()


def facts(raw: bytes) -> Nccl | None:
    found = [f for s in Recogniser("t").run([raw]) if s.kind == "nccl-log" for f in parse(s)]
    merged = Nccl.merge(found, lambda _: None) if found else None
    return merged


def said(nccl: Nccl | None) -> set[tuple[object, ...]]:
    """Every value with what it is of, so that one fact set can be compared with another."""
    out: set[tuple[object, ...]] = set()
    for comm in nccl or ():
        out |= {("transport", t.a, t.b, t.via) for t in comm.transports}
        out |= {(k, v) for k in ("version", "nranks", "nnodes", "channels") if (v := getattr(comm, k)) is not None}
        out |= {("env", k, v) for k, v in comm.env.items()}
        for rank in comm.ranks:
            for key in ("rank", "nranks", "comm_id", "cuda_dev", "nvml_dev", "bus_id", "nnodes", "local_ranks", "channels", "nvls_channels", "p2p_channels", "init_seconds"):
                out.add((key, rank.rank, getattr(rank, key)))
            out |= {("graph", *g) for g in rank.graphs} | {("init", rank.rank, *p) for p in rank.init_parts}
    for proc in nccl.procs if nccl else ():
        for key in ("host", "pid", "version", "cuda_driver", "network", "address", "nvlink_gbs", "fabric_state"):
            out.add((key, proc.host, getattr(proc, key)))
        out |= {("choice", *key, *sizes) for key, sizes in proc.choices.items()}
        out |= {("path", *p) for p in proc.paths} | {("nic", n) for n in proc.nics}
    out |= {("message", m.family, *sorted(m.fields.items())) for m in (nccl.messages if nccl else ())}
    out |= {("diagnostic", d.status, d.text) for d in (nccl.diagnostics if nccl else ())}
    return {entry for entry in out if entry[-1] is not None}


def test_cut_at_every_byte() -> None:
    whole = said(facts(SHORT))
    assert len(whole) > 60
    for cut in range(len(SHORT)):
        more = said(facts(SHORT[:cut])) - whole
        # A message whose numbers are cut off keeps its family and names less.
        more = {m for m in more if not (m[0] == "message" and all(p in {x for w in whole if w[0] == "message" for x in w[2:]} for p in m[2:]))}
        assert not more, (cut, SHORT[max(0, cut - 60) : cut], more)


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 140), st.sampled_from(sorted(p.name for p in LOGS.glob("*.txt"))))
def test_broken_by_a_terminal(width: int, name: str) -> None:
    """Lines folded at a width: ranks and transports stay what they are."""
    raw = (LOGS / name).read_bytes()
    folded = b"\n".join(line[i : i + width] for line in raw.split(b"\n") for i in range(0, max(1, len(line)), width))
    whole, less = said(facts(raw)), said(facts(folded))
    kinds = ("transport", "nranks", "rank", "nvml_dev", "cuda_dev", "bus_id", "nnodes", "channels", "version", "comm_id")
    assert not {e for e in less - whole if e[0] in kinds}


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 5000))
def test_any_bytes_in_between(noise: bytes, place: int) -> None:
    noise = noise.replace(b"NCCL", b"")
    raw = SHORT
    at = raw.find(b"\n", place % len(raw)) + 1
    facts(raw[:at] + noise + b"\n" + raw[at:])
