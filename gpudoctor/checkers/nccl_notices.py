"""What NCCL remarks and goes on from: values of settings that it does not take, adapters that it lost on the way."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.checkers.nccl_causes import NETWORK_ERROR
from gpudoctor.checkers.nccl_env import NCCL_ENV
from gpudoctor.facts.nccl import Nccl
from gpudoctor.model import CERTAIN, LIKELY, NOTE, WARNING, Finding, Step
from gpudoctor.nccl_messages import family

_MOST = 12  # values named one by one


def remarked(nccl: Nccl) -> Iterator[Finding]:
    """Each remark once, however many ranks make it."""
    yield from _not_taken(nccl)
    yield from _failed_over(nccl)


def _not_taken(nccl: Nccl) -> Iterator[Finding]:
    told = {m.text: m for m in reversed(nccl.messages) if m.family == "env-limited"}
    for text, message in list(reversed(told.items()))[:_MOST]:
        words = {key.rstrip("0123456789"): value for key, value in message.fields.items()}
        name = words.get("name")
        value = words.get("given")
        what = f"{name}={value}" if name and value else name or "A setting of NCCL's"
        yield Finding(
            NCCL_ENV.slug, NOTE, "host",
            f"{what} does not count as it was set: NCCL says `{text[:200]}`.",
            (message.at("text"),), CERTAIN, None,
        )  # fmt: skip


def _failed_over(nccl: Nccl) -> Iterator[Finding]:
    told = [m for m in nccl.messages if m.family == "ib-failed-over"]
    known = family("ib-failed-over") if told else None  # a healthy log needs none of the table
    if known is not None:
        hosts = sorted({m.host for m in told if m.host})
        where = f" on {', '.join(hosts[:4])}{f' and {len(hosts) - 4} more' if len(hosts) > 4 else ''}" if hosts else ""
        yield Finding(
            NETWORK_ERROR.slug, WARNING, "host",
            f"An RDMA adapter failed during the run{where}, and NCCL went on over the others.",
            tuple(m.at("text") for m in told[:3]), LIKELY, "the bandwidth of that adapter",
            (Step(known.remedy, "ibstat; sudo dmesg -T | grep -i mlx5"),),
            host=hosts[0] if len(hosts) == 1 and len({p.host for p in nccl.procs}) > 1 else None,
        )  # fmt: skip
