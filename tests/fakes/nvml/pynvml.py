"""A made-up `pynvml` for tests of the NVML child: two GPUs with the answers of two H200 in a virtual machine.

FAKE_NVML chooses a variant: `` (healthy), `absent` (no driver), `lost` (GPU 1 fell off), `growing` (errors grow on link 3
of GPU 0), `plain` (cards without NVLink, below one switch), `bare` (a pynvml that knows almost no call).
"""

from __future__ import annotations

import ctypes
import os

WAY = os.environ.get("FAKE_NVML", "")
_reads: dict[object, int] = {}


class NVMLError(Exception):
    pass


class _Plain:
    def __init__(self, **values):
        self.__dict__.update(values)


def _refuse(words):
    raise NVMLError(words)


def nvmlInit():
    if WAY == "absent":
        _refuse("Driver/library version mismatch")


def nvmlShutdown():
    pass


def nvmlSystemGetDriverVersion():
    return b"580.159.04"


def nvmlDeviceGetCount():
    return 2


def nvmlDeviceGetHandleByIndex(index):
    if WAY == "lost" and index == 1:
        _refuse("GPU is lost")
    return index


def nvmlDeviceGetPciInfo(gpu):
    return _Plain(busId=f"00000000:00:0{6 + gpu}.0", pciDeviceId=0x233510DE, pciSubSystemId=0x18BE10DE)


def nvmlDeviceGetComputeRunningProcesses(gpu):
    pids = os.environ.get("FAKE_PIDS", "").split(",")
    return [_Plain(pid=int(pid)) for pid in pids if pid]


if WAY != "bare":

    def nvmlSystemGetNVMLVersion():
        return "13.580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2():
        return 13000

    def nvmlDeviceGetName(gpu):
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(gpu):
        return f"GPU-0000000{gpu}-1111-2222-3333-444444444444"

    def nvmlDeviceGetMinorNumber(gpu):
        return gpu

    def nvmlDeviceGetCurrPcieLinkGeneration(gpu):
        # Asleep in the first reading only.
        _reads[gpu] = _reads.get(gpu, 0) + 1
        return 1 if _reads[gpu] == 1 else 5

    def nvmlDeviceGetCurrPcieLinkWidth(gpu):
        return 16

    nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth

    def nvmlDeviceGetMaxPcieLinkGeneration(gpu):
        return 5

    nvmlDeviceGetGpuMaxPcieLinkGeneration = nvmlDeviceGetMaxPcieLinkGeneration

    def nvmlDeviceGetPcieReplayCounter(gpu):
        return 0

    def nvmlDeviceGetPerformanceState(gpu):
        return 0

    def nvmlDeviceGetPersistenceMode(gpu):
        return 1

    def nvmlDeviceGetNumaNodeId(gpu):
        _refuse("Not Supported")

    def nvmlDeviceGetVirtualizationMode(gpu):
        return 1

    def nvmlDeviceGetMigMode(gpu):
        return [0, 0]

    def nvmlDeviceGetCurrentClocksThrottleReasons(gpu):
        return 1

    def nvmlDeviceGetRemappedRows(gpu):
        return (0, 0, 0, 0)

    def nvmlDeviceGetMemoryInfo(gpu):
        return _Plain(total=143771 << 20)

    def nvmlDeviceGetBAR1MemoryInfo(gpu):
        return _Plain(bar1Total=262144 << 20)

    def nvmlDeviceGetUtilizationRates(gpu):
        return _Plain(gpu=90, memory=1)

    def nvmlDeviceGetPcieThroughput(gpu, counter):
        return 40_000_000 if counter else 1000

    def nvmlDeviceGetPowerManagementLimit(gpu):
        return 700000

    def nvmlDeviceGetCpuAffinity(gpu, size):
        return [4294967295] + [0] * (size - 1)

    def nvmlDeviceGetMemoryAffinity(gpu, size, scope):
        return [1] + [0] * (size - 1)

    def nvmlDeviceGetTotalEccErrors(gpu, kind, counter):
        return 0

    def nvmlDeviceGetNvLinkState(gpu, link):
        return 1 if WAY != "plain" else _refuse("Not Supported")

    def nvmlDeviceGetNvLinkRemotePciInfo(gpu, link):
        return _Plain(busId="FFFFFFFF:FF:FF.0")

    def nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link):
        return 2

    def nvmlDeviceGetNvLinkErrorCounter(gpu, link, counter):
        if WAY == "growing" and (gpu, link, counter) == (0, 3, 0):
            _reads["errors"] = _reads.get("errors", 0) + 40
            return _reads["errors"]
        return 0

    class _Value(ctypes.Union):
        _fields_ = [("dVal", ctypes.c_double), ("uiVal", ctypes.c_uint), ("ullVal", ctypes.c_ulonglong)]

    def nvmlDeviceGetFieldValues(gpu, ids):
        known = {91: 18, 164: 26562, 165: 1, 166: 6} if WAY != "plain" else {91: 0}
        out = []
        for entry in ids:
            number = entry[0] if isinstance(entry, tuple) else entry
            value = _Value()
            value.uiVal = known.get(number, 0)
            out.append(_Plain(nvmlReturn=0 if number in known else 3, valueType=1, value=value))
        return out

    def nvmlDeviceGetTopologyCommonAncestor(a, b):
        return 10 if WAY == "plain" else 30

    def nvmlDeviceGetP2PStatus(a, b, capability):
        if WAY == "plain":
            return 5 if capability == 2 else 0
        return 0

    class c_nvmlGpuFabricInfo_v2_t(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint) for name in ("version", "status", "cliqueId", "state", "healthMask")]

    def nvmlDeviceGetGpuFabricInfoV(gpu, info):
        info._obj.state = 3
        return 0
