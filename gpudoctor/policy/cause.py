"""The catalogue's entry for what a policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudoctor.model import Cause
from gpudoctor.record import replace

if TYPE_CHECKING:
    from gpudoctor.discover import Plugins

POLICY = Cause(
    "GD901",
    "policy",
    "The node is not what its policy asks for",
    "error, or warning where the section of the policy says so",
    "A policy states what a node must be before a job may use it: how many GPUs and which, how every pair is joined, what the "
    "PCIe links, NICs and driver are, and what was measured. It says nothing of why a node differs: the other findings do, and "
    "where one of them is about the same subject the gate names it first. A PCIe generation is judged by a reading taken under "
    "proven traffic only, since idle GPUs lower it; where there is none, the gate could not tell.",
    "gpudoctor gate --policy FILE, and the output that each rule rests on",
    "Repair the node, or correct the policy where the node is as it should be: gpudoctor gate --learn -o policy.toml.",
)


def with_policy(plugins: Plugins) -> Plugins:
    """The catalogue with the one entry that no checker says, but the gate."""
    return replace(plugins, causes=(*plugins.causes, POLICY))
