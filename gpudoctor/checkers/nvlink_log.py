"""What the kernel log says of NVLinks that the driver could not set up."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.nvlink_view import cards, nvl_pairs
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.kernel import UnsetLinks
from gpudoctor.facts.store import FactView
from gpudoctor.facts.topology import NvLinks, Pairs
from gpudoctor.model import ERROR, LIKELY, Finding, Step


def unset_links(slug: str, facts: FactView) -> Iterator[Finding]:
    """The driver's words on links that it could not set up, where no listing or matrix shows how they are."""
    told, links, pairs, gpus = facts.get(UnsetLinks), facts.get(NvLinks), facts.get(Pairs), facts.get(Gpus)
    masks = [e for e in told.events if not e.stale] if told is not None else []
    up = links is not None and any(n.active for n in links) or bool(nvl_pairs(pairs))
    able = not gpus or not gpus.listed or any(c.part is None or c.part.nvlink for c in cards(gpus, links, pairs).values())
    if not masks or up or not able:
        return  # what it is like now beats what it was like when the driver tried
    times = "" if len(masks) == 1 else f", {len(masks)} times"
    yield Finding(
        slug,
        ERROR,
        "host",
        f"The driver could not learn which NVLinks of a GPU see a far end{times}, so none is set up with that peer. Which GPU that is the log does not say.",
        tuple(dict.fromkeys((masks[0].at("text"), masks[-1].at("text")))),
        LIKELY,
        "traffic with that GPU goes over PCIe, or jobs fail to start",
        (
            Step("See which GPU has no link up, and what the log says before", "nvidia-smi nvlink -s; sudo dmesg -T | grep -E 'NVRM|Xid|SXid' | head -40"),
            Step("Drain the host and power it off and on, so that all links train anew", "sudo poweroff", "disruptive", "nvidia-smi nvlink -s"),
            Step("If they are down again, send a report to the vendor", "sudo nvidia-bug-report.sh", "hardware", "gpudoctor check --select nvlink-down"),
        ),
    )
