"""`gpudoctor capture`."""

from __future__ import annotations

import os
import sys

import click

from gpudoctor.cli.look import PROBE_DIR, snapshot_of_host
from gpudoctor.cli.options import job_option, offered, timeout_option


@click.command("capture")
@click.option("-o", "path", required=True, metavar="PATH", shell_complete=offered("files"), help="Where to: a directory, or a file ending in .tar.gz.")
@timeout_option()
@job_option
def command(path: str, timeout: float, job: bool) -> None:
    """Record this host as a snapshot that `gpudoctor check --from PATH` judges elsewhere.

    Host and user names, serials, UUIDs, MAC and IP addresses, process names and environment values outside an allow list
    are replaced by stand-ins, the same one for the same thing throughout the snapshot.
    """
    from gpudoctor.collect.redact import redact
    from gpudoctor.collect.save import NotASnapshot, check_place, save

    if path.lower().endswith((".zip", ".tar", ".gz", ".xz", ".bz2", ".zst", ".7z")) and not path.lower().endswith(".tar.gz"):
        raise click.UsageError(f"{path}: an archive is written as .tar.gz; any other name is a directory")
    try:
        check_place(path)
    except NotASnapshot as error:
        raise click.UsageError(str(error)) from error
    snapshot, timed_out = snapshot_of_host(job, timeout)
    covered = redact(snapshot, hosts=_host_names(), users=_user_names())
    try:
        save(covered, path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error

    from gpudoctor.collect.capture import ended
    from gpudoctor.ingest import take
    from gpudoctor.judge import judge

    # What was written is read once as `check --from` will: the same rule says whether it is enough to judge a host by.
    report = judge(take([covered]), None, {}, timed_out=timed_out)
    failed = [c for c in covered.captures if c.status != "ok" or not c.out]
    answered = len(covered.captures) - len(failed)
    say = [f"Wrote {path}: {answered} of {len(covered.captures)} probes answered. Private details are replaced by stand-ins."]
    if snapshot.replayed_from:
        say.append(f"Recorded from {snapshot.replayed_from} ({PROBE_DIR}), not from this host.")
    if failed:
        say.append("Not read:")
        say.extend(f"  {c.probe.shown}: {ended(c)}" for c in failed)
    if report.exit_code:
        say.append("Not enough to judge this host by; lacking:")
        say.extend(f"  {m.fact}: {m.reason}" for m in report.missing if m.needed)
    say.append(f"Judge it with: gpudoctor check --from {path}")
    sys.stdout.write("\n".join(say) + "\n")
    sys.exit(report.exit_code)


def _host_names() -> list[str]:
    """Names of this host that no DNS server has to be asked for."""
    names = [os.uname().nodename, os.environ.get("HOSTNAME", ""), os.environ.get("SLURMD_NODENAME", "")]
    return [name for name in names if name]


def _user_names() -> list[str]:
    import pwd

    names = [os.environ.get(variable, "") for variable in ("USER", "LOGNAME", "SUDO_USER")]
    for uid in {os.getuid(), os.geteuid()}:
        try:
            names.append(pwd.getpwuid(uid).pw_name)
        except KeyError:  # a container's user without an entry
            pass
    return sorted({name for name in names if name})
