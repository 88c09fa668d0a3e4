"""What the host and the container runtime say in single lines: how the kernel began, mounts, the settings of a container, RDMA ports."""

from __future__ import annotations

from gpudoctor.read.formats import Format

# Behind the mount point: `type tmpfs (rw,…)` of mount, `tmpfs rw,… 0 0` of /proc/mounts, `rw,… - tmpfs shm rw,…` of mountinfo.
# A line of fstab, which only says what should be mounted, begins its options with `defaults`.
_TMPFS = r"(?:type tmpfs \(r[wo]\b|tmpfs r[wo](?:,\S*)? 0 0\s*$|r[wo]\S* .{0,80}- tmpfs \S+ r[wo])"

# Where a line of the kernel log begins its message.
_SAID = r"(?:^\s*|\]\s+|kernel:\s+)"
_UNITS = r"(?:dmar|ivhd)\d{1,3}"

HOST: tuple[Format, ...] = (
    # The first lines of a kernel log, /proc/cmdline, and what /sys says of the IOMMU. A loader's file (`GRUB_CMDLINE_LINUX=`,
    # `linux /boot/…`) says what should be, and is left alone.
    Format(
        "kernel-boot",
        (
            "Linux version ", "ommand line: ", "BOOT_IMAGE=", "Hypervisor detected: ", "Default domain type: ", "to iommu group ", "iommu: Adding device ", "IOMMU enabled", "AMD-Vi: ",
            "iommu_groups/", "DMA-FQ", " identity", " DMA", "dmar0", "ivhd0",
        ),
        rf"(?:\]\s+|kernel:\s+)Linux version \d|{_SAID}(?:Kernel c|C)ommand line: \S|^\s*BOOT_IMAGE=\S|{_SAID}Hypervisor detected: \w"
        rf"|{_SAID}iommu: Default domain type: \w|\S: Adding to iommu group \d|{_SAID}iommu: Adding device \S{{7,12}} to group \d"
        rf"|{_SAID}DMAR: IOMMU enabled|{_SAID}AMD-Vi: (?:Extended features|Interrupt remapping enabled|Found IOMMU)"
        rf"|^\s*/sys/kernel/iommu_groups/\d{{1,4}}/type:(?:DMA|identity)|^\s*(?:\d{{1,4}} )?DMA-FQ\s*$|^\s*\d{{1,4}} (?:DMA|identity)\s*$"
        rf"|^\s*{_UNITS}(?:\s+{_UNITS})*\s*$",
    ),
    Format(
        "shm-mount",
        (" /dev/shm ", '"ShmSize"', '"IpcMode"'),
        rf"^\s*(?:\d+ \d+ \d+:\d+ /|\S{{1,80}}(?: on)?) /dev/shm {_TMPFS}|^\s*\"(?:ShmSize\"\s*:\s*\d|IpcMode\"\s*:\s*\")",
    ),
    # `rdma link`, with the numbers that releases before iproute2 5.0 put first.
    Format(
        "rdma-link",
        (" physical_state ",),
        r"^\s*(?:link |\d{1,4}/\d{1,3}: )[\w.-]{1,64}/\d{1,3}:? .{0,200}?\bstate [A-Z]+ physical_state [A-Z_]",
    ),
)
