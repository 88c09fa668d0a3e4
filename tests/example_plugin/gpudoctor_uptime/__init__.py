"""A checker of a third party: a host that was not booted for a year misses firmware and driver updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpudoctor.checkers.base import BaseChecker
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Platform
from gpudoctor.model import NOTE, CannotTell, Cause, Finding, Step, Threshold

LIMIT_DAYS = Threshold("days since boot", 365, "days", "house rule of this example", "2026-11-29")


class LongUptime(BaseChecker):
    """Everything a checker needs: a name, causes, the facts it reads, and `check`."""

    name: ClassVar[str] = "uptime"
    needs = (Platform,)
    causes = (
        Cause(
            code="UPT001",
            slug="long-uptime",
            title="The host was not booted for a year",
            severity="note",
            reasoning="Driver, firmware and BIOS updates only work after a boot.",
            evidence="/proc/uptime",
            remedy="Boot the host in its next maintenance window.",
            thresholds=(LIMIT_DAYS,),
        ),
    )

    def check(self, facts: FactView) -> Iterator[Finding | CannotTell]:
        platform = facts[Platform].entry
        if platform.uptime_s is None:
            yield CannotTell("long-uptime", "the time since boot is unknown")
        elif platform.uptime_s / 86400 > LIMIT_DAYS.value:
            days = int(platform.uptime_s / 86400)
            yield Finding(
                "long-uptime",
                NOTE,
                "host",
                f"The host has been up for {days} days.",
                (platform.at("uptime_s"),),
                remediation=(Step("Boot it in its next maintenance window.", "sudo reboot", "disruptive", "uptime"),),
            )
