"""Input through pipes: all of it, and never longer than the limit, whoever holds the other end."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

from tests.support import FIXTURES, ROOT, gpudoctor, report

QUERY = FIXTURES / "hosts" / "h100x8-nvswitch-healthy" / "smi-q-x.out"


def test_a_command_in_the_place_of_a_file_is_read_from_its_first_byte() -> None:
    """`--from <(nvidia-smi -q -x)`: what is opened twice gives the second reader the rest only."""
    read, write = os.pipe()
    with subprocess.Popen(["cat", str(QUERY)], stdout=write):
        os.close(write)
        done = subprocess.run(
            [sys.executable, "-m", "gpudoctor", "facts", "--from", f"/dev/fd/{read}", "--format", "json"],
            pass_fds=(read,), capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        os.close(read)
    straight = gpudoctor("facts", "--from", str(QUERY), "--format", "json")
    assert done.returncode == straight.returncode == 0
    assert done.stdout.replace(f"/dev/fd/{read}".encode(), str(QUERY).encode()) == straight.stdout


def test_a_pipe_that_nobody_writes_to_is_no_longer_waited_for_than_the_limit(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, said = report("check", "--from", str(pipe), "--timeout", "0.5", timeout=30)
    assert status == 3 and "ran past --timeout" in said["missing"][0]["reason"]
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gpudoctor", "check", "-q", "--from", "-", "--timeout", "0.5"],
            stdin=read, capture_output=True, timeout=30, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 3 and b"ran past --timeout" in done.stdout


def piped(content: bytes) -> tuple[int, bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", "facts", "--from", "-", "--format", "json"],
        input=content, capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout


def test_what_comes_compressed_is_unpacked_as_it_comes() -> None:
    plain = QUERY.read_bytes()
    half = len(plain) // 2
    wanted = piped(plain)
    assert wanted[0] == 0
    assert piped(gzip.compress(plain)) == wanted
    assert piped(gzip.compress(plain[:half]) + gzip.compress(plain[half:])) == wanted  # two members, as `cat a.gz b.gz` gives them


def test_a_compressed_stream_that_is_cut_gives_what_came_before() -> None:
    log = b"".join(b"h:1:%d [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n" % n for n in range(20_000))
    packed = gzip.compress(log)
    status, said = piped(packed[: len(packed) // 2])
    assert status == 0 and b"2.28.9" in said
    assert piped(b"\x1f")[0] == piped(b"\x1f\x8b no gzip")[0] == 3
