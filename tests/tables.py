"""Tables in the shapes nccl-tests has printed over the years, made from known numbers, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.parsers import nccl_tests
from tests.support import parse, recognise

# name -> (redop and root columns, last column of a half, behind the halves)
LAYOUTS = {
    "2.19": (True, True, "#wrong", ()),
    "iters": (True, True, "#wrong", ("#iters",)),
    "stamps": (True, True, "#wrong", ("timestamp",)),
    "per-iteration": (True, True, "#wrong", ()),
    "old all_reduce": (True, False, "error", ()),
    "old all_gather": (False, False, "error", ()),
    "old broadcast": (False, True, "error", ()),
}
FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "sendrecv": lambda n: 1.0}


def number(value: float, width: int = 7) -> str:
    """Two decimals, fewer as a number grows, as the program prints."""
    text = f"{value:.2f}"
    if len(text) > width:
        text = f"{value:.1f}"
    return text if len(text) <= width else f"{value:.0f}"


def row(layout: str, size: int, rate: float, factor: float, wrong: str | None = None, inside: float | None = None) -> str:
    """One row; rate is the busbw out-of-place, `inside` in-place."""
    redop, root, last, behind = LAYOUTS[layout]
    wrong = wrong if wrong is not None else "0e+00" if last == "error" else "0"
    words = [str(size), str(size // 4), "float", *(["sum"] if redop else []), *(["-1"] if root else [])]
    for busbw in (rate, rate if inside is None else inside):
        algbw = busbw / factor if factor else max(busbw, 1.0)
        time = size / algbw / 1e3 if algbw else 30.0
        words += [number(time, 7), number(algbw, 6), number(busbw if factor else 0.0, 6), wrong]
        if layout == "per-iteration":
            words += ["1.00", "2.00", "1.90", "3.10"]
    words += {"#iters": ["20"], "timestamp": ["2026-11-29", "18:30:29"]}.get(behind[0], []) if behind else []
    return "  ".join(f"{w:>7}" for w in words)


def header(layout: str) -> str:
    redop, root, last, behind = LAYOUTS[layout]
    half = ["time", "algbw", "busbw", last] + (["i_min", "i_max", "i_p99", "i_cv%"] if layout == "per-iteration" else [])
    words = ["size", "count", "type", *(["redop"] if redop else []), *(["root"] if root else []), *half, *half, *behind]
    return "#" + "  ".join(f"{w:>7}" for w in words)


def devices(nranks: int, name: str = "NVIDIA H200", host: str = "vm", old: bool = False) -> list[str]:
    if old:
        return [f"#   Rank {n:>2} Pid   4242 on {host:>10} device {n:>2} [0x{n + 6:02x}] {name}" for n in range(nranks)]
    return [f"#  Rank {n:>2} Group  0 Pid   4242 on {host:>10} device {n:>2} [0000:00:{n + 6:02x}] {name}" for n in range(nranks)]


def table(
    rates: Iterable[tuple[int, float]],
    collective: str = "all_reduce",
    nranks: int = 2,
    layout: str = "2.19",
    name: str = "NVIDIA H200",
    wrong: str | None = None,
    bounds: str = "0 OK",
    average: str = "100.5",
    named: bool = True,
) -> str:
    """A whole run."""
    factor = FACTORS[collective](nranks)
    banner = [f"# Collective test starting: {collective}_perf"] if named else []
    end = ["#", f"# Collective test concluded: {collective}_perf"] if named else []
    return "\n".join(
        [
            *banner,
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
            "#",
            "# Using devices",
            *devices(nranks, name, old=LAYOUTS[layout][2] == "error"),
            "#",
            "#          out-of-place          in-place",
            header(layout),
            "#  (B)    (elements)   (us)  (GB/s)  (GB/s)     (us)  (GB/s)  (GB/s)",
            *(row(layout, size, rate, factor, wrong) for size, rate in rates),
            f"# Out of bounds values : {bounds}",
            f"# Avg bus bandwidth    : {average} ",
            *end,
            "",
        ]
    )


def runs(text, kind="nccl-tests"):
    return [r for f in parse(kind, text) if isinstance(f, Bandwidth) for r in f.runs]


def read(text):
    """Through recognition, as `--from FILE` does."""
    found = []
    for section in recognise(text):
        if section.kind == "nccl-tests":
            found += [r for f in nccl_tests.parse(section) if isinstance(f, Bandwidth) for r in f.runs]
    return found


def only(text):
    found = read(text)
    assert len(found) == 1
    return found[0]
