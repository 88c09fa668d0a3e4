"""The logs gpudoctor knows, of jobs, of measurements and of the kernel: telling lines anywhere in a text."""

from __future__ import annotations

from gpudoctor.read.formats import JSON_LINE, Format
from gpudoctor.read.kernel_words import NVIDIA_SAYS

# Types of an nccl-tests row.
_NCCL_TYPE = r"(?:u?int(?:8|32|64)?|char|half|float|double|bfloat16|f8e[45]m[23]|fp8_e[45]m[23])"
_NCCL_PERF = r"(?:all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)_perf(?:_mpi)?"

# The lines of a RAS answer; a row of its table only after the blanks that align it, where anything stands before.
RAS_LINE = (
    r"Job summary\s*$|Communicators\.\.\. \(|Missing communicator data from \d"
    r"|\d+ job process\w* (?:is|are) considered dead|Rank \d+ .{0,80}(?:managed by process \d|process information not found)"
    r"|Process \d+ on node \S+ managing GPU|#\d+-\d+ \([0-9a-f]{6,16}\) [A-Z]|\d+ ranks have (?:launched up to operation \d|not launched any|status [A-Z])"
    r"|Communicator ranks have different|Encountered \d+ communication timeout|No communicator data collected"
)
RAS_ROW = r"\d+ +\d+ +\d+ +[\d-]+ +\d+ +\d+ +[A-Z]{4,8} +[A-Z]{2,10}"

# Commands that start a job, where one stands.
_STARTS_A_JOB = r"(?:torchrun|mpirun|mpiexec|srun|deepspeed|accelerate launch|vllm serve|python3? (?:-m|[\w./-]{1,80}\.py))(?=\s|$)"

LOGS: tuple[Format, ...] = (
    # A start that failed, in the words of mpirun, srun, ssh and torchrun.
    Format(
        "start-failure",
        (
            "ssh: connect to host", "ssh: Could not resolve", "Host key verification", "Permission denied (", "unable to connect from", "orted: ", "prted: ", "prte: ",
            "hydra_pmi_proxy: ", "hydra_bstrap_proxy: ", "the specified application", "the specified executable", "execve(): ", "not enough slots", "are already filled", "attempt to run as root",
            'direct launched using "srun"', "run: error: ", "sbatch: error: ", "salloc: error: ", "with a remote daemon", "start one or more daemons", "daemon has unexpectedly",
            "how to route a message", "has failed to listen on", "RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousClosedError",
            "Rendezvous complete for workers", " of the rendezvous ", "Rendezvous'ed worker",
        ),
        r"ssh: (?:connect to host \S+ port \d+: |Could not resolve hostname )|Host key verification failed\.|Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)"
        r"|unable to connect from \"[^\"]+\" to \"|\b(?:orted|prted|prte|hydra_pmi_proxy|hydra_bstrap_proxy): (?:command not found|not found|No such file|error while loading)"
        r"|was unable to (?:launch|find) the specified (?:application|executable)|error: execve\(\): |There are not enough slots available|allocated for this job are already filled"
        r"|has detected an attempt to run as root|direct launched using \"srun\"|^\s*(?:srun|sbatch|salloc): error: (?:Unable to |Task launch for |Application launch failed|Batch job submission failed|Invalid |Job submit/allocate failed)"
        r"|(?:PRTE|ORTE) (?:has lost communication with a remote daemon|was unable to reliably start one or more daemons|does not know how to route a message)|An? (?:ORTE|PRTE) daemon has unexpectedly failed"
        r"|(?:RuntimeError|DistNetworkError|ConnectionError): The server socket has failed to listen on any|Rendezvous(?:Connection|Timeout|Closed)Error(?:: |\s*$)"
        r"|Rendezvous complete for workers|has joined round \d{1,9} of the rendezvous |Rendezvous'ed worker group",
        around=(0, 2),
    ),
    # A table of nccl-tests: NCCL's own log runs through it.
    Format(
        "nccl-tests",
        (
            "nThread ", "Using devices", "algbw", "Out of bounds values", "Avg bus bandwidth", "Collective test ", "nccl-tests version",
            "_perf ", "_perf_mpi ", "Test NCCL failure", "Test CUDA failure", "Test failure", "Test timeout", "Invalid number of GPUs",
            "mpirun noticed that process", "non-zero exit", "srun: error: ", "Terminating StepId", "Terminating job step", "CANCELLED AT ",
            "Job step aborted", "srun: Force Terminated",
        ),
        # A page that takes `#` for a heading loses it.
        rf"^\s*(?:#\s*)?(?:nThread\s+\d|Using devices\s*$|Avg bus bandwidth\s*:|Rank\s+\d+\s.*Pid|size\s+count\s|bytes\s+N\s+type\s)"
        # The footer is what people quote by itself.
        r"|^[\s#>*`]*Out of bounds values\s*:\s*\d|`[\s#]*Out of bounds values\s*:\s*\d{1,18}\s+FAILED"
        r"|^\s*#\s*(?:Collective test (?:starting|concluded)|nccl-tests version|Using devices)"
        rf"|^\s*\d+\s+\d+\s+{_NCCL_TYPE}\s+\S|(?:^|[\s/]){_NCCL_PERF}\s+-|Test (?:(?:NCCL|CUDA) )?failure \S+:\d|Test timeout (?:\(\d+s\) )?\S+:\d|Invalid number of GPUs: \d"
        # The second line of mpirun's sentence, which it breaks itself.
        r"|mpirun noticed that process|non-zero exit (?:code|status)|srun: error: |srun: (?:\S{1,40} _step_signal: )?Terminating (?:StepId|job step)"
        r"|srun: (?:Job step aborted|Force Terminated)|\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT |^\s*(?:on\s+)?signal \d{1,2} \([A-Z][\w ]{1,40}\)\.?\s*$",
        hints=(
            r"signal \d{1,2} \(",
            r"Rank +\d+ +(?:Group +\d+ +)?Pid",
            *(
                rf"{blank}{word}\s+(?:[a-z]{{3,6}}\s+)?-?\d"
                for blank in (" ", "\t")  # `checkpoint 12` is no row
                for word in ("int\\d{0,2}", "uint\\d{0,2}", "char", "half", "float", "double", "bfloat16", "f8e\\dm\\d", "fp8_e\\dm\\d")
            ),
        ),
    ),
    # Lines of ProcessGroupNCCL, of its helpers and of torchrun about a job that failed or hangs.
    Format(
        "torch-watchdog",
        (
            "WorkNCCL(", "Watchdog caught", "ProcessGroupNCCL", "NCCL work: ", "watchdog at work", "last enqueued work",
            "watchdog thread terminated", "watchdog got stuck", "monitoredBarrier", "store_based_barrier_key", "store based barrier",
            "didn't join collective", "didn't finish collective", "lagging ranks", "exitcode ", "clients joined",
            "noticed that process rank", "(exitcode: -", "received by PID", "] Signal: ", "Heartbeat monitor timed out",
            "[missing ranks: ", "by subset of ranks and are waiting", "to join the rendezvous", "exits with return code = -", "Child process with PID", "ing ncclUniqueId from", "mismatch between collectives", "ranks joining collective", "ollective sequence number: ", " at entry ",
        ),
        r"WorkNCCL\(|Watchdog caught|ProcessGroupNCCL(?!\.cpp:\d+(?:, | \(most recent call)|::)|NCCL work: |watchdog at work|last enqueued work|watchdog thread terminated"
        r"|watchdog got stuck|Heartbeat monitor timed out|(?:failed to pass|timed out in|successfully reached) monitoredBarrier|store_based_barrier_key|store based barrier|didn't (?:join|finish) collective"
        r"|is setting up NCCL communicator and ret\w+ ncclUniqueId|Detected mismatch between collectives on ranks|Not all ranks joining collective|(?:Input/output mismatch in the c|^\s*C)ollective sequence number: \d|^\s*Collective \d{1,18} at entry \d{1,18} errors"
        r"|\[missing ranks: ?\d|by subset of ranks and are waiting for remainder of ranks|Expected \d+ threads to join the rendezvous"
        r"|sigkill_handler\] \[.*\] exits with return code = -\d|\[rank: \d+\] Child process with PID \d+ terminated with code -?\d"
        r"|lagging ranks|clients joined|^\s*exitcode\s{1,8}:\s"
        r"|noticed that process rank \d+ with PID"
        r"|failed \(exitcode: -\d{1,2}\) local_rank: \d|traceback\s{1,8}: Signal \d{1,2} \(SIG|\[[\w.-]{1,120}:\d{1,9}\] Signal: [A-Z][\w ]{1,40} \(\d",
        around=(6, 24),
    ),
    # NCCL's RAS service, its answer as text; the JSON form.
    Format(
        "ras",
        (
            "compiled with CUDA", "Job summary", "Communicators... (", "Missing communicator data", "job process",
            "managing GPU", "MISMATCH", "INCOMPLETE", "ranks have ", "Encountered ",
            "No communicator data", "Initialization error", "Asynchronous error",
        ),
        rf"NCCL version (?:2\.[2-9]\d|[3-9])\S* compiled with CUDA|^\s*(?:{RAS_LINE}|{RAS_ROW})",
        hints=(r"Rank \d+ ", r"RUNNING +[A-Z]", r"ABORT +[A-Z]", r"FINALIZE +[A-Z]", r"INIT +[A-Z]", r"NOCOMM +[A-Z]", r"#\d+-\d+ \("),
    ),
    Format("ras-json", ('"nccl_version"',), r'^\s*(?:\{\s*)?"nccl_version"\s*:\s*"', JSON_LINE, balanced=True),
    # NCCL's words as a framework repeats them, without NCCL's prefix.
    Format(
        "nccl-text",
        (
            "no socket interface found", "Duplicate GPU detected", "using the same GPU", "invalid device ordinal", "failed to extend /dev/shm",
            "shared memory segment", "NVLink SHARP", "Fabric Manager or NVSwitches", "peer access is not supported", "Mismatched NCCL version",
            "Got completion ", "ncclUnhandledCudaError", "ncclRemoteError", "unhandled cuda error", "system not yet initialized", "Cuda failure ",
            "onnection closed by remote peer", "socketStartConnect", "socketPollConnect", "socketProgress", "Net : Connect to ", "Call to ibv_", "Call to connect failed", "uncorrectable NVLink error",
            "uncorrectable ECC error", "Error: CUDA error: ", "Error: CUDA out of memory", "Error: Allocation on device", " of node ", "Failed, NCCL error", " : invalid root ",
            "Invalid rank requested", "client socket has timed out", "client socket has failed to connect to any",
            "ncclSystemError", "ncclInternalError", "No CUDA GPUs are available", "no kernel image is available", "ncclInvalidUsage",
            "NCCL error", "NCCL operation", "unhandled system error", "essage truncated", "collective mismatch", "Mismatched collective",
            ": cudaError", "by an unexpected system error", "Worker exit type: SYSTEM_ERROR",
            " in coordination service", " heartbeat timeout", "Barrier timed out. ", "Collective ops is aborted by", "MPI_ABORT was invoked on rank",
            " bytes instead of ", "Unable to load NCCL", "libnccl.so", "Socket recv failed while polling",
            "Last error:", "Bootstrap Root : ", "Socket creation failed", "socketFinalizeAccept: wrong ", "max locked memory (ulimit -l)",
        ),
        r"no socket interface found|Duplicate GPU detected|using the same GPU|invalid device ordinal|failed to extend /dev/shm|shared memory segment"
        r"|NVLink SHARP|Fabric Manager or NVSwitches|peer access is not supported|Mismatched NCCL version|Got completion |ncclUnhandledCudaError"
        r"|ncclRemoteError|unhandled cuda error|system not yet initialized|Cuda failure |onnection closed by remote peer|socketStartConnect|socketPollConnect"
        r"|socketProgress|Net : Connect to |Call to (?:ibv_|connect failed ?:)|ncclSystemError|CUDA error: uncorrectable (?:NVLink|ECC) error"
        r"|^(?!.*(?:WARN|[Rr]etr[yi]|[Cc]aught|[Ii]gnor|[Ss]kip)).*(?:(?:RuntimeError|AcceleratorError): CUDA error: \w|(?:OutOfMemoryError|RuntimeError): CUDA out of memory|OutOfMemoryError: Allocation on device)"
        r"|(?:Error|what\(\)): .{0,200}: cudaError[A-Z]\w{2,60}: \w|A worker died or was killed while executing a task by an unexpected system error|Worker exit type: SYSTEM_ERROR"
        r"|/task:\d{1,7} has been set to ERROR in coordination service|/task:\d{1,7} heartbeat timeout|Barrier timed out\. (?:Id|Barrier_id): "
        r"|Collective ops is aborted by|MPI_ABORT was invoked on rank \d"
        r"|Attribute \w+ of node \w+ not found|Failed, NCCL error|\w : invalid root \d|Invalid rank requested : \d"
        r"|client socket has (?:timed out after \d|failed to connect to any network address)"
        r"|ncclInternalError|No CUDA GPUs are available|no kernel image is available|ncclInvalidUsage|unhandled system error|NCCL error(?: in|: )"
        r"|NCCL operation \w+.{0,200}failed|essage truncated ?: receiv|collective mismatch error|may be caused by a collective mismatch|Mismatched collective detected"
        r"|receiv(?:ed|ing) \d+ bytes instead of \d|Unable to load NCCL library|libnccl\.so[.\d]*: cannot open|Socket recv failed while polling"
        r"|(?:^|[\s:])Last error:[\s`|]*$|Bootstrap Root : (?:mismatch in|rank \d+ of)|Socket creation failed : |socketFinalizeAccept: wrong |UCX  ERROR .{0,80}max locked memory \(ulimit -l\)",
    ),
    # A command that starts the run below it, and may give it settings; what merely speaks of a setting is left to the parser
    # to pass over.
    Format(
        "launch",
        ("NCCL_", "torchrun ", "mpirun ", "mpiexec ", "srun ", "deepspeed ", "accelerate launch ", "vllm serve ", "python -m ", "python3 -m "),
        r"^(?!.*(?:for details|NCCL (?:INFO|WARN|error))).*(?:\bNCCL_[A-Z0-9_]{2,60}=[^\s=]\S{0,200}\s+\S"
        r"|(?:(?:^|\s)-[xe]|--env|\bexport)[ =]+NCCL_|-genv NCCL_|\bunset NCCL_)"
        rf"|^[\s$#>+*`]{{0,12}}(?:[^\s$#%]{{1,80}}[^$#%]{{0,80}}[$#%]\s+)?{_STARTS_A_JOB}",
        hints=(r"python3? [\w./-]{1,80}\.py",),
    ),
    # `py-spy dump`: the main thread's head, with the process above it and its frames below.
    Format(
        "py-spy",
        ('"MainThread"',),
        r'^\s*Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:active|idle)[^)]{0,30}\): "MainThread"\s*$',
        around=(4, 96),
    ),
    # `uname -a`, /proc/version, PyTorch's `Python platform`: only WSL2's kernel says where it runs.
    Format("kernel-name", ("microsoft-standard",), r"\b\d+\.\d+\.\d+(?:\.\d+)?-microsoft-standard\b"),
    # The Fabric Manager's service and what the journal says of it; `Active: …` stands below the unit's name.
    Format(
        "fm-log",
        ("nvidia-fabricmanager", "abric manager", "abric Manager", "driver interface version", "NV_WARN_NOTHING_TO_DO", "NVSwitch device information", "number of NVSwitches", "nv-fabricmanager -c"),
        r"nvidia-fabricmanager\.service\s+-\s|nvidia-fabricmanager\.service: |Unit nvidia-fabricmanager(?:\.service)? could not be found"
        r"|Job for nvidia-fabricmanager\.service failed|(?:Started|Stopped|Failed to start) (?:NVIDIA [Ff]abric [Mm]anager|nvidia-fabricmanager\.service)"
        r"|driver interface version \d[\d.]* do(?:n|esn).?t match with driver version|NV_WARN_NOTHING_TO_DO"
        r"|fabric manager config file item: |detected number of NVSwitches do|query NVSwitch device information .{0,80}failed|nv-fabricmanager -c \S{1,200} failed! Exit code",
        around=(0, 4),
    ),
    Format(
        "kernel-log",
        ("NVRM", "nvidia-peermem", "nvidia-nvlink: ", "nvidia-uvm: ", "nvidia: ", "nvidia 0", "mlx5_core ", "SXid", "Xid (PCI:", "NVSwitch", "AER:", "AER-aware", "PCIe Bus Error", "nvidia-nvswitch", "available PCIe bandwidth", "AMD-Vi", "DMAR:", "[Hardware Error]: ", "enabling device", "nvidia-modeset: ERROR", "failed with error -", "DPC: containment", "aer_ratelimit: ", "Killed process "),
        rf"{NVIDIA_SAYS}|" r"\[Hardware Error\]: +(?:Error \d|section_type:|port_type:|device_id:|vendor_id:|class_code:)|\bKilled process \d{1,9}(?:, UID \d+,)? \(|NVRM: |SXid|^[\s>*`-]{0,8}Xid \(PCI:[0-9a-fA-F:.]{7,16}\): \d{1,5}, |detected NVSwitch|AER: |AER-aware|PCIe Bus Error|nvidia-nvswitch|limited by|AMD-Vi: .{0,40}(?:Event|IO_PAGE_FAULT)|DMAR: ?\[.{0,60}fault|\bnvidia [0-9a-f:.]{10,16}: (?:enabling device|probe with)|\bnvidia: probe of|nvidia-modeset: ERROR: GPU:|pcieport [0-9a-f:.]{10,16}: DPC: containment|\baer_ratelimit: \d",
    ),
)
