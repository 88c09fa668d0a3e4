"""`gpudoctor probe`: what one of gpudoctor's own probes reads, so that whoever finds it cited can look."""

from __future__ import annotations

import os
import sys

import click

from gpudoctor.cli.ending import complain
from gpudoctor.cli.options import timeout_option

NAMES = ("nvml", "pci", "system", "job")  # as in collect/probes.py, which --help does not load


@click.command("probe")
@click.argument("name", type=click.Choice(NAMES))
@timeout_option(30.0)
def command(name: str, timeout: float) -> None:
    """Print what a report cites as `gpudoctor probe NAME`: one line of JSON, raw, with private details in it.

    \b
    nvml     NVIDIA's library: GPUs, NVLinks, peer to peer, fabric
    pci      the tree of PCI devices in /sys
    system   memory, /dev/shm, limits, versions, settings of NCCL
    job      the GPU processes now running

    Exit status 3 when it gave nothing.
    """
    from gpudoctor.cli.look import PROBE_DIR
    from gpudoctor.collect.capture import ended
    from gpudoctor.collect.collector import replay
    from gpudoctor.collect.probes import by_id
    from gpudoctor.collect.runner import run

    probe = by_id(name)
    assert probe is not None
    recorded = os.environ.get(PROBE_DIR)
    try:
        capture = replay(recorded, job=True).of(name) if recorded else run([(probe, timeout)])[0]
    except OSError as error:
        raise click.UsageError(f"{PROBE_DIR}={recorded}: {error.strerror or error}") from error
    if capture is None or not capture.out:
        complain(f"{probe.shown}: {ended(capture) if capture is not None else 'not recorded'}")
        sys.exit(3)
    sys.stdout.buffer.write(capture.out)
    sys.exit(0 if capture.status == "ok" else 3)
