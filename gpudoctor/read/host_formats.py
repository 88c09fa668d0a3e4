"""What the host and the container runtime say in single lines: mounts, and the settings of a container."""

from __future__ import annotations

from gpudoctor.read.formats import Format

# Behind the mount point: `type tmpfs (rw,…)` of mount, `tmpfs rw,… 0 0` of /proc/mounts, `rw,… - tmpfs shm rw,…` of mountinfo.
# A line of fstab, which only says what should be mounted, begins its options with `defaults`.
_TMPFS = r"(?:type tmpfs \(r[wo]\b|tmpfs r[wo](?:,\S*)? 0 0\s*$|r[wo]\S* .{0,80}- tmpfs \S+ r[wo])"

HOST: tuple[Format, ...] = (
    Format(
        "shm-mount",
        (" /dev/shm ", '"ShmSize"', '"IpcMode"'),
        rf"^\s*(?:\d+ \d+ \d+:\d+ /|\S{{1,80}}(?: on)?) /dev/shm {_TMPFS}|^\s*\"(?:ShmSize\"\s*:\s*\d|IpcMode\"\s*:\s*\")",
    ),
)
