"""Lines of mount, /proc/mounts and /proc/PID/mountinfo for /dev/shm, and a container's `ShmSize`, to Shm."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.system import Shm, ShmEntry
from gpudoctor.read.section import Section

# The options stand in parentheses, before ` 0 0`, or (mountinfo) both before and behind the ` - `.
_MOUNT = re.compile(r"/dev/shm (?:type tmpfs \((?P<mount>[^()]*)\)|tmpfs (?P<proc>\S+) 0 0\s*$|(?P<info>r[wo]\S* .*- tmpfs \S+ \S+))")
_SIZE = re.compile(r"(?:^|[, ])size=(\d{1,18})([kmg]?)(?=[,)\s]|$)", re.I)
_READ_ONLY = re.compile(r"(?:^|\s)ro(?:,|\s|$)")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}
_IPC = re.compile(r'"IpcMode"\s*:\s*"([^"]{0,80})"')
_GIVEN = re.compile(r'"ShmSize"\s*:\s*(\d{1,18})(?=\s*[,}\s]|$)')


def parse(section: Section) -> Iterator[Fact | Loss]:
    """A mount without a size takes half of the memory. Containers with the host's /dev/shm do not use their `ShmSize`."""
    own = True
    for line in section:
        mount = _MOUNT.search(line.text)
        if mount is not None and line.cut and mount["mount"] is None:
            yield Loss("the size of /dev/shm", f"{section.source}, line {line.number}: cut off")
        elif mount is not None:
            options = mount["mount"] or mount["proc"] or mount["info"]
            size = _SIZE.search(options)
            bytes_ = int(size[1]) * 1024 ** _POWERS[size[2].lower()] if size else None
            writable = not _READ_ONLY.search(options)
            yield Shm(ShmEntry(size_bytes=bytes_, writable=False if not writable else None, mounted=True, origin={"*": section.at(line)}))
        ipc = _IPC.search(line.text)
        if ipc is not None:
            own = ipc[1] in ("", "private", "shareable")
        size = _GIVEN.search(line.text)
        if size is not None and own and not (line.cut and size.end() == len(line.text)) and int(size[1]):
            yield Shm(ShmEntry(size_bytes=int(size[1]), mounted=True, origin={"*": section.at(line)}))
