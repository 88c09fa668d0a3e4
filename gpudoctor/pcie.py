"""PCI Express arithmetic: transfer rate and lanes to a generation's name and to GB/s in each direction.

Line coding, from the PCI Express Base Specification: 8b/10b at 2.5 and 5 GT/s (revisions 1.0, 2.0, section 4.2.1), 128b/130b
from 8 to 32 GT/s (revisions 3.0 to 5.0, section 4.2.2), and at 64 GT/s flits of 256 bytes of which 14 are CRC and FEC
(revision 6.0, section 4.2.3). What packets add (headers, acknowledgements) is not subtracted: a copy reaches 80 to 90 % of
these figures.
"""

from __future__ import annotations

from gpudoctor.model import Gain

# GT/s per lane -> (generation, share of the bits that is not line coding)
_RATES: dict[float, tuple[int, float]] = {
    2.5: (1, 8 / 10),
    5.0: (2, 8 / 10),
    8.0: (3, 128 / 130),
    16.0: (4, 128 / 130),
    32.0: (5, 128 / 130),
    64.0: (6, 242 / 256),
}


def generation(speed_gts: float | None) -> int | None:
    """32.0 -> 5; None for a rate that no generation has."""
    found = _RATES.get(speed_gts) if speed_gts is not None else None
    return found[0] if found else None


def gbs(speed_gts: float | None, width: int | None) -> float | None:
    """GB/s (10^9) in each direction after line coding: 16 GT/s x16 -> 31.5."""
    if speed_gts is None or width is None or speed_gts not in _RATES:
        return None
    return speed_gts * _RATES[speed_gts][1] * width / 8


def name(speed_gts: float | None, width: int | None = None) -> str:
    """`Gen4 x16`; what is not known is left out, and an odd rate is named in GT/s."""
    gen = generation(speed_gts)
    words = [f"Gen{gen}" if gen else f"{speed_gts:g} GT/s"] if speed_gts is not None else []
    return " ".join([*words, *([f"x{width}"] if width else [])])


def amount(rate_gbs: float) -> str:
    """For a reader: `7.9`, and `0.25` where one digit would say too little."""
    return f"{rate_gbs:.1f}" if rate_gbs >= 1 else f"{rate_gbs:.2g}"


def cost(before: float | None, after: float | None) -> str | None:
    """`at most 7.9 of 31.5 GB/s each way`; None where either is not known."""
    if before is None or after is None:
        return None
    return f"at most {amount(before)} of {amount(after)} GB/s each way"


def gain(before: float | None, after: float | None) -> Gain | None:
    """The same in numbers, for the report's JSON."""
    return Gain(round(before, 1), round(after, 1), "GB/s each way") if before and after else None
