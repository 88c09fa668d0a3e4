"""`gpudoctor checks`: the catalogue."""

from __future__ import annotations

import json
import sys

import click

from gpudoctor.cli.options import text_or_json


@click.command("checks")
@text_or_json
def command(format_: str) -> None:
    """List every cause gpudoctor can name, with its code and how severe it can be.

    Checks of other installed packages are listed too; one that cannot be loaded is named with the reason (status 3).
    """
    from gpudoctor.discover import load
    from gpudoctor.policy.cause import with_policy
    from gpudoctor.report import catalogue

    plugins = with_policy(load())
    if format_ == "json":
        from gpudoctor.report.jsonout import of_no_host

        whole = {**of_no_host(3 if plugins.failures else 0), **catalogue.as_json(plugins)}
        sys.stdout.write(json.dumps(whole, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(catalogue.table(plugins))
    sys.exit(3 if plugins.failures else 0)
