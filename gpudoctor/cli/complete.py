"""What a shell offers at the TAB key: entries of the catalogue, and files. Loaded only there."""

from __future__ import annotations

from click.shell_completion import CompletionItem

from gpudoctor.discover import load
from gpudoctor.model import Cause
from gpudoctor.policy.cause import with_policy


def causes(incomplete: str) -> list[CompletionItem]:
    """Every entry that `explain` knows."""
    return _named(with_policy(load()).causes, incomplete)


def checks(incomplete: str) -> list[CompletionItem]:
    """The next name of a list with commas, of what a check can be told to look for."""
    head, comma, last = incomplete.rpartition(",")
    named = head.lower().split(",")
    return [CompletionItem(f"{head}{comma}{found.value}", help=found.help) for found in _named(load().causes, last) if found.value not in named]


def policies(incomplete: str) -> list[CompletionItem]:
    """Those that are shipped, and files."""
    from gpudoctor.cli.gate import shipped_policies

    return [*(CompletionItem(name) for name in shipped_policies() if name.startswith(incomplete)), *files(incomplete)]


def files(incomplete: str) -> list[CompletionItem]:
    """Whatever the shell finds of that name."""
    return [CompletionItem(incomplete, type="file")]


def _named(known: tuple[Cause, ...], incomplete: str) -> list[CompletionItem]:
    """By slug; by code where its beginning was typed."""
    begun = incomplete.lower()
    slugs = [CompletionItem(c.slug, help=c.title) for c in sorted(known, key=lambda c: c.slug) if c.slug.startswith(begun)]
    return slugs + [CompletionItem(c.code, help=c.title) for c in known if begun and c.code.lower().startswith(begun)]
