"""`nccl-text` sections: NCCL's words in the mouth of a framework (PyTorch's `Last error:`, JAX, vLLM), without its prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.nccl import Nccl, NcclMessage
from gpudoctor.nccl_messages import DOES_WITHOUT, HARMLESS, Family, classify
from gpudoctor.read.section import Section
from gpudoctor.read.text import strip_prefixes

# torchrun and PyTorch itself, then vLLM: a worker named by its tensor-parallel rank alone has no other.
_RANK = re.compile(
    r"^.{0,120}?(?:\[(?:rank|Rank ?)(?P<own>\d{1,7})\]|\([^()]{0,60}?(?:\brank=(?P<all>\d{1,7})|(?:Worker_|Worker )TP(?P<tp>\d{1,7}))(?= )[^()]{0,60}\bpid=\d)"
)
# A launcher's, a logger's or a pod's words before an exception.
_BEFORE = re.compile(r"^.{1,200}?[\s\]:>|,\"](?=(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): )")

# What stands below where NCCL left no word.
_OTHERS = re.compile(r"(?:\S+:? )?(?:Traceback|File \"|frame #|Exception raised|\[?\d{4}-\d\d-\d\d)")
_UNKNOWN = Family(id="unknown", pattern="", tier=HARMLESS, versions="", meaning="", remedy="")


def parse(section: Section) -> Iterator[Fact | Loss]:
    """One message a family: the same exception is printed by every layer above it."""
    found: dict[tuple[str, str], NcclMessage] = {}
    quotes = False  # PyTorch's `Last error:` stood above
    for line in section:
        text = line.text.strip()
        known = classify(text[:1000] + ("" if line.cut else "\n"))
        quoted, quotes = quotes and not _OTHERS.match(text), text.rstrip(" `|").endswith("Last error:")
        if known is None and not quoted:
            continue
        family, fields = known if known is not None else (_UNKNOWN, {})
        told = _RANK.match(line.text)
        rank = told["own"] or told["all"] or told["tp"] if told is not None else fields.get("own_rank")
        found.setdefault(
            (family.id, rank or ""),
            NcclMessage(
                family=family.id,
                slug=family.slug,
                tier=DOES_WITHOUT if family.ends_if_last else family.tier,
                text=_BEFORE.sub("", strip_prefixes(text))[:500],
                source=section.source,
                line=line.number,
                level="TEXT",
                rank=int(rank) if rank else None,
                fields=fields,
                origin={"*": section.at(line)},
            ),
        )
    if found:
        yield Nccl(messages=tuple(found.values()))
