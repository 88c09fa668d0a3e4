"""`nccl-log` sections: the lines were read as they passed (gpudoctor.read.nccl_bulk); here they become facts."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.parsers.nccl_lines import NcclLog
from gpudoctor.read.section import Section


def parse(section: Section) -> Iterator[Fact | Loss]:
    """One Nccl fact for the whole source."""
    log = section.read
    if not isinstance(log, NcclLog):  # a section made of lines, as a probe gives it
        from gpudoctor.read.nccl_bulk import NcclBulk

        bulk = NcclBulk(section.source)
        for line in section:
            bulk.line(line)
        log = bulk.log
    yield from log.facts()
