"""`gpudoctor explain CODE-or-SLUG`."""

from __future__ import annotations

import json
import sys

import click


@click.command("explain")
@click.argument("name", metavar="CODE-or-SLUG")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(name: str, format_: str) -> None:
    """Explain one cause: what it means, what shows it, the limits applied and their source, and the remedy."""
    from gpudoctor.discover import load
    from gpudoctor.report import catalogue

    plugins = load()
    wanted = name.strip().lower()
    cause = next((c for c in plugins.causes if wanted in (c.slug, c.code.lower())), None)
    if cause is None:
        from difflib import get_close_matches

        near = get_close_matches(wanted, [c.slug for c in plugins.causes], 3)
        raise click.UsageError(
            f"no cause is called {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "; see `gpudoctor checks`")
        )
    if format_ == "json":
        sys.stdout.write(json.dumps(catalogue.cause_json(plugins, cause), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(catalogue.entry(plugins, cause))
