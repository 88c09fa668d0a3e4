"""The size of /dev/shm where a list of mounts or the container's settings tell it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.checkers.shm import SharedMemory
from gpudoctor.facts.system import Shm
from tests.support import check, parse, recognise

OPTIONS = "rw,nosuid,nodev,noexec,relatime"
SMALL = [
    f"root@pod:/# mount | grep shm\nshm on /dev/shm type tmpfs ({OPTIONS},size=65536k,inode64)\n",
    f"shm /dev/shm tmpfs {OPTIONS},size=65536k 0 0\n",
    f"1234 1220 0:161 / /dev/shm {OPTIONS} - tmpfs shm rw,size=65536k,inode64\n",
    json.dumps([{"HostConfig": {"IpcMode": "private", "ShmSize": 67108864, "Runtime": "nvidia"}}], indent=4),
]


def sizes(text: str) -> list[Any]:
    return [(f.entry.size_bytes, f.entry.writable) for s in recognise(text) for f in parse(s.kind, "".join(f"{x.text}\n" for x in s)) if isinstance(f, Shm)]


def said(text: str) -> set[str]:
    facts = [f for s in recognise(text) for f in parse(s.kind, "".join(f"{x.text}\n" for x in s)) if isinstance(f, Shm)]
    return {f.slug for f in check(SharedMemory(), *facts)}


@pytest.mark.parametrize("text", SMALL)
def test_the_64_mib_that_docker_gives(text: str) -> None:
    assert sizes(text) == [(64 << 20, None)]
    assert said(text) == {"shm"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (f"tmpfs on /dev/shm type tmpfs ({OPTIONS},inode64)\n", None),  # half of the memory
        (f"tmpfs /dev/shm tmpfs {OPTIONS},size=528321016k,nr_inodes=132080254 0 0\n", 528321016 << 10),
        (json.dumps({"IpcMode": "shareable", "ShmSize": 34359738368}, indent=2), 32 << 30),
    ],
)
def test_enough_of_it(text: str, size: int | None) -> None:
    assert sizes(text) == [(size, None)]
    assert said(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "shm on /run/containerd/io.containerd.grpc.v1.cri/sandboxes/aaa/shm type tmpfs (rw,nosuid,nodev,size=65536k)\n",  # another's
        "tmpfs /dev/shm tmpfs defaults,size=64m 0 0\n",  # fstab: what should be
        json.dumps({"IpcMode": "host", "ShmSize": 67108864}, indent=2),  # not used: the container has the host's
        "The container's /dev/shm is a tmpfs (rw, size=64m) by default.\n",
    ],
)
def test_what_is_not_the_memory_of_the_job(text: str) -> None:
    assert sizes(text) == []


def test_a_mount_that_cannot_be_written() -> None:
    assert sizes("tmpfs on /dev/shm type tmpfs (ro,relatime)\n") == [(None, False)]
