"""What a line of the kernel log looks like that a module for GPUs or RDMA adapters wrote."""

# A message of NVIDIA's modules or of an adapter's driver behind the stamp of a kernel log: `[12.345678] `, `… kernel: `, `6,39,12345,-;`.
NVIDIA_SAYS = (
    r"(?:\[ *\d{1,9}\.\d{3,9}\] +|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d: ]{13}\] +|\bkernel: (?:\[ *\d{1,9}\.\d{3,9}\] +)?|^\d{1,3},\d{1,12},\d{1,18},[^;]{1,20};)"
    r"(?:NVRM: |nvidia-(?:peermem|nvlink|nvswitch\d*|uvm|modeset)[: ]|nvidia: |nvidia [0-9a-f:.]{10,16}: |mlx5_core [0-9a-f:.]{10,16})"
)
