"""What one complaint of NCCL's comes to, in a sentence."""

from __future__ import annotations

import re

from gpudoctor.checkers.nccl_view import sentence, who
from gpudoctor.facts.nccl import NcclComm, NcclMessage, bdf_of
from gpudoctor.nccl_messages import ECHO

# Where the meaning of a result waits for the words that stand beside it.
AWAITED = re.compile(r" (?:[^.]*only NCCL's own WARN line says|NCCL's own WARN line, or the text after `Last error:`, says which)\.")
# Addresses that lead to no other host.
NOWHERE = (
    ("to 169.254.", "link-local: an interface gives itself such a one where nobody configured it, and other hosts do not reach it"),
    ("to fe80:", "link-local: it is reached over one link alone, mostly not over the one that the hosts share"),
    ("to 172.17.0.", "of Docker's own bridge, which no other host reaches"),
    ("to 127.", "of the loopback interface, which no other host reaches"),
)
# Completion status of an RDMA work request (enum ibv_wc_status of libibverbs).
_OTHER_STATUS = "the adapter gave up on a transfer."
_STATUS = {
    "1": "a message was longer than the buffer it was sent to: the ranks disagree on sizes or settings.",
    "2": "the queue was used in a way that the adapter refuses.",
    "4": "this side's memory could not be reached: a GPU buffer whose mapping is gone or not allowed (GPUDirect RDMA, ACS, IOMMU).",
    "9": "the peer's adapter refused the request: its buffer is shorter or not open for it (ranks that disagree, or GPUDirect RDMA).",
    "10": "the peer's memory could not be reached: its mapping is gone or not allowed (GPUDirect RDMA, ACS, IOMMU there).",
    "11": "the peer's adapter could not carry it out: look for an error on that host (GPUDirect RDMA, ACS, IOMMU).",
    "12": "no answer came after all retries: cable, switch, routing, wrong GID, lossy RoCE, or the peer died.",
    "13": "the receiver was not ready again and again: it died or hangs.",
    "19": "a fatal error of the adapter: look at dmesg.",
    "20": "the peer did not answer in time.",
    "21": "a general error of the adapter: look at its firmware and at dmesg.",
}


def what(first: NcclMessage, rank: int | None, meaning: str) -> str:
    said = sentence(who(first, rank))
    place = f" in {first.file}" if first.file else ""
    fields = first.fields
    if first.family == "duplicate-gpu" and "other" in fields:
        return f"Ranks {fields['rank']} and {fields['other']} use the same GPU ({bdf_of(fields['bus'].lower()) or fields['bus']}). {meaning}"
    if first.family == "ib-completion":
        peer = f" for peer {fields['peer']}" if "peer" in fields else ""
        status = fields.get("status", "")
        return f"{said} got completion status {status or '(cut off)'} from its RDMA adapter{peer}: {_STATUS.get(status, _OTHER_STATUS)}"
    if first.level == "INFO" and first.family.startswith("torch-"):
        return f"{said} failed ({first.text}). {meaning}"
    if first.family == "version-of-ranks" and "local" in fields:
        return f"{said} runs NCCL {fields['local']}, its peer {fields['remote']}. {meaning}"
    if first.family == "ib-async" and "event" in fields:
        return f"{said} got the event `{fields['event']}` from its RDMA adapter{' ' + fields['nic'] if 'nic' in fields else ''}. {meaning}"
    if fields.get("error"):
        return f"{said} failed{place}: CUDA says '{fields['error']}'. {meaning}"
    return f"{said} failed{place}: {meaning}"


def unknown_words(first: NcclMessage, job: list[NcclComm]) -> NcclMessage | None:
    """NCCL's own first warning that no family knows, where only the result of the call is known."""
    if not first.family.startswith("torch-"):
        return None
    own = [m for c in job for m in c.messages if m.level in ("WARN", "TEXT") and (m.family == "unknown" or m.tier == ECHO) and m.slug is None]
    return min(own, key=lambda m: (m.family != "unknown", m.source, m.line), default=None)
