"""What NVML says of every GPU, its links and pairs, as one line of JSON. Reads only; every call may fail on its own.

`errors` of a GPU maps the name of a call to the driver's words, so that "not supported" and "broken" stay apart.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.probe.nvml_ask import Asker, plain, words
else:
    from nvml_ask import Asker, plain, words  # beside this file

ROUNDS, PAUSE_S = 3, 0.03  # readings of each PCIe link
ERRORS_PAUSE_S = 0.05  # between the two readings of the NVLink counters
BUDGET_S = 15.0  # a driver that answers, but slowly: what is left out then is said under `skipped`
# Field ids (nvml.h). By number: not every pynvml knows every name.
LINK_COUNT, REPLAY_ROLLOVER, C2C_COUNT = 91, 95, 170
DL_REPLAY, DL_RECOVERY, DL_CRC = 161, 162, 163
GET_SPEED, GET_STATE, GET_VERSION = 164, 165, 166
RECOVERY_OK, RECOVERY_FAILED, RECOVERY_ALL = 213, 214, 215  # NVLink 5
PCIE_TX_BYTES, PCIE_RX_BYTES = 197, 198
MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS
P2P = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3))


def mask(words_: Any) -> list[int] | None:
    """NVML's words of a bit mask as numbers."""
    return None if words_ is None else [int(word) for word in words_]


def identity(ask: Asker, handle: Any) -> dict[str, Any]:
    """Which GPU it is."""
    pci = ask("GetPciInfo", handle)
    out: dict[str, Any] = {
        "name": plain(ask("GetName", handle)),
        "uuid": plain(ask("GetUUID", handle)),
        "minor": ask("GetMinorNumber", handle),
    }
    if pci is not None:
        out["bus_id"] = plain(pci.busId)
        out["pci_device_id"] = int(pci.pciDeviceId)
        out["pci_subsystem_id"] = int(pci.pciSubSystemId)
    return out


def state(ask: Asker, handle: Any) -> dict[str, Any]:
    """Settings and health that do not change while one looks."""
    cpus = (os.sysconf("SC_NPROCESSORS_CONF") + 63) // 64 or 1
    memory, bar1 = ask("GetMemoryInfo", handle), ask("GetBAR1MemoryInfo", handle)
    use, mig = ask("GetUtilizationRates", handle), ask("GetMigMode", handle)
    limits = ask("GetPowerManagementLimitConstraints", handle)
    remapped = ask("GetRemappedRows", handle)
    processes = ask("GetComputeRunningProcesses", handle)
    pages = [ask("GetRetiredPages", handle, cause) for cause in (0, 1)]
    rollovers, c2c = ask.fields(handle, REPLAY_ROLLOVER, C2C_COUNT)
    return {
        "pcie_max_generation": ask("GetMaxPcieLinkGeneration", handle),
        "pcie_gpu_max_generation": ask("GetGpuMaxPcieLinkGeneration", handle),
        "pcie_max_width": ask("GetMaxPcieLinkWidth", handle),
        "pcie_replays": ask("GetPcieReplayCounter", handle),
        "pcie_replay_rollovers": rollovers,
        "performance_state": ask("GetPerformanceState", handle),
        "persistence": ask("GetPersistenceMode", handle),
        "display_active": ask("GetDisplayActive", handle),
        "utilisation_pct": None if use is None else use.gpu,
        "fb_bytes": None if memory is None else int(memory.total),
        "bar1_bytes": None if bar1 is None else int(bar1.bar1Total),
        "mig_mode": None if mig is None else mig[0],
        "virtualization_mode": ask("GetVirtualizationMode", handle),
        "ecc_uncorrected_volatile": ask("GetTotalEccErrors", handle, 1, 0),
        "ecc_uncorrected_aggregate": ask("GetTotalEccErrors", handle, 1, 1),
        "remapped_rows": None if remapped is None else [int(n) for n in remapped],
        "retired_single_bit": None if pages[0] is None else len(pages[0]),
        "retired_double_bit": None if pages[1] is None else len(pages[1]),
        "retired_pending": ask("GetRetiredPagesPendingStatus", handle),
        "clocks_event_reasons": ask("GetCurrentClocksThrottleReasons", handle),
        "power_limit_mw": ask("GetPowerManagementLimit", handle),
        "power_default_mw": ask("GetPowerManagementDefaultLimit", handle),
        "power_max_mw": None if limits is None else limits[1],
        # The node of the GPU's own memory on Grace systems, not the CPU node it hangs off.
        "memory_numa_node": ask("GetNumaNodeId", handle),
        "cpu_affinity": mask(ask("GetCpuAffinity", handle, cpus)),
        "memory_affinity": mask(ask("GetMemoryAffinity", handle, 16, 0)),
        "c2c_links": c2c,
        "processes": None if processes is None else len(processes),
        "fabric": fabric(ask, handle),
    }


def fabric(ask: Asker, handle: Any) -> dict[str, Any] | None:
    """The newest form this pynvml and this driver both know."""
    nvml = ask.nvml
    for make, call in (
        ("c_nvmlGpuFabricInfo_v3_t", "GetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_v2_t", "GetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_t", "GetGpuFabricInfo"),
    ):
        if not hasattr(nvml, make):
            continue
        try:
            from ctypes import byref

            info = getattr(nvml, make)()
            getattr(nvml, f"nvmlDevice{call}")(handle, byref(info))
        except Exception as error:
            ask.errors["GetGpuFabricInfo"] = words(error)
            continue
        ask.errors.pop("GetGpuFabricInfo", None)
        out: dict[str, Any] = {"state": int(info.state), "status": int(info.status), "clique_id": int(info.cliqueId)}
        if out["status"]:
            out["status_text"] = plain(ask("nvmlErrorString", out["status"]))
        for name, key in (("healthMask", "health_mask"), ("healthSummary", "health_summary")):
            if hasattr(info, name):
                out[key] = int(getattr(info, name))
        return out
    return None


def links(ask: Asker, handle: Any, count: int | float | None) -> list[dict[str, Any]] | None:
    """Every NVLink; None where this part has none or does not say."""
    out: list[dict[str, Any]] = []
    for link in range(min(int(count), MAX_LINKS) if count is not None else MAX_LINKS):
        try:
            active = ask.nvml.nvmlDeviceGetNvLinkState(handle, link)
        except Exception as error:
            if count is None or link == 0 and words(error) == "Not Supported":
                ask.errors.setdefault("GetNvLinkState", words(error))
                break  # past the last link of this part
            out.append({"link": link, "active": None, "error": words(error)})
            continue
        speed, mode, version = ask.fields(handle, (GET_SPEED, link), (GET_STATE, link), (GET_VERSION, link))
        about: dict[str, Any] = {"link": link, "active": active, "state": mode, "speed_mbs": speed, "version": version}
        if active:
            remote = ask("GetNvLinkRemotePciInfo", handle, link)
            about["remote_bus_id"] = None if remote is None else plain(remote.busId)
            about["remote_type"] = ask("GetNvLinkRemoteDeviceType", handle, link)
        out.append(about)
    return out or None


def counters(ask: Asker, handle: Any, link: int) -> dict[str, Any]:
    """Error counters of one link: the per-link calls where the part has them, else the fields of NVLink 3 and later."""
    out: dict[str, Any] = {}
    fields = ((DL_REPLAY, "replay"), (DL_RECOVERY, "recovery"), (DL_CRC, "crc"))
    newer = ((RECOVERY_OK, "recovery_ok"), (RECOVERY_FAILED, "recovery_failed"), (RECOVERY_ALL, "recovery_all"))
    values = ask.fields(handle, *((field, link) for field, _ in (*fields, *newer)))
    out.update(zip((name for _, name in (*fields, *newer)), values, strict=True))
    for counter, name in ((0, "replay"), (1, "recovery"), (2, "crc"), (3, "crc_data")):
        if out.get(name) is None:
            out[name] = ask("GetNvLinkErrorCounter", handle, link, counter)
    return {name: value for name, value in out.items() if value is not None}


def link_errors(asked: list[tuple[Asker, Any, dict[str, Any]]]) -> None:
    """Two readings of all counters, a moment apart: what grows between them is failing now."""
    for turn in ("errors_before", "errors"):
        if turn == "errors":
            time.sleep(ERRORS_PAUSE_S)
        for ask, handle, gpu in asked:
            for link in gpu.get("nvlinks") or ():
                if link["active"]:
                    link[turn] = counters(ask, handle, link["link"])


def samples(asked: list[tuple[Asker, Any, dict[str, Any]]]) -> None:
    """PCIe generation and width a few times, with the bytes that crossed the link in between where the GPU counts them."""
    for turn in range(ROUNDS):
        if turn:
            time.sleep(PAUSE_S)
        for ask, handle, gpu in asked:
            use = ask("GetUtilizationRates", handle)
            tx, rx = ask.fields(handle, PCIE_TX_BYTES, PCIE_RX_BYTES)
            gpu["samples"].append(
                {
                    "generation": ask("GetCurrPcieLinkGeneration", handle),
                    "width": ask("GetCurrPcieLinkWidth", handle),
                    "utilisation_pct": None if use is None else use.gpu,
                    "at_s": time.monotonic(),
                    "tx_bytes": tx,
                    "rx_bytes": rx,
                }
            )
    for ask, handle, gpu in asked:
        # The older call takes 20 ms each; an idle GPU is not worth them.
        if gpu["samples"][-1]["tx_bytes"] is None and gpu["samples"][-1]["utilisation_pct"]:
            gpu["samples"][-1]["tx_kbs"] = ask("GetPcieThroughput", handle, 0)
            gpu["samples"][-1]["rx_kbs"] = ask("GetPcieThroughput", handle, 1)


def pairs(nvml: Any, handles: dict[int, Any], until: float) -> tuple[list[dict[str, Any]], bool]:
    """Common ancestor and peer access of every pair; False where time ran out."""
    out: list[dict[str, Any]] = []
    for a, first in handles.items():
        for b, second in handles.items():
            if a >= b:
                continue
            if time.monotonic() > until:
                return out, False
            ask = Asker(nvml)
            pair: dict[str, Any] = {"a": a, "b": b, "ancestor": ask("GetTopologyCommonAncestor", first, second)}
            for name, number in P2P:
                pair[name] = [ask("GetP2PStatus", first, second, number), ask("GetP2PStatus", second, first, number)]
            if ask.errors:
                pair["errors"] = ask.errors
            out.append(pair)
    return out, True


def look(nvml: Any) -> dict[str, Any]:
    """The whole answer."""
    until = time.monotonic() + BUDGET_S
    system = Asker(nvml)
    cuda = system("nvmlSystemGetCudaDriverVersion_v2")
    answer: dict[str, Any] = {
        "probe": "gpudoctor.nvml",
        "schema": 1,
        "driver_version": plain(system("nvmlSystemGetDriverVersion")),
        "nvml_version": plain(system("nvmlSystemGetNVMLVersion")),
        "cuda_version": cuda,
        "count": system("nvmlDeviceGetCount"),
        "gpus": [],
        "skipped": [],
    }
    asked: list[tuple[Asker, Any, dict[str, Any]]] = []
    for index in range(answer["count"] or 0):
        gpu: dict[str, Any] = {"index": index, "errors": {}, "samples": []}
        answer["gpus"].append(gpu)
        if time.monotonic() > until:
            answer["skipped"].append(f"GPU{index}")
            continue
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:  # "GPU is lost", "Insufficient Permissions": the others still answer
            gpu["error"] = words(error)
            continue
        ask = Asker(nvml)
        gpu.update(identity(ask, handle))
        gpu.update(state(ask, handle))
        gpu["nvlink_count"] = ask.fields(handle, LINK_COUNT)[0]
        gpu["nvlinks"] = links(ask, handle, gpu["nvlink_count"])
        gpu["errors"] = ask.errors
        if "GPU is lost" in ask.errors.values():
            gpu["error"] = "GPU is lost"
        asked.append((ask, handle, gpu))
    if time.monotonic() < until:
        samples(asked)
        link_errors(asked)
    else:
        answer["skipped"].append("samples")
    answer["pairs"], whole = pairs(nvml, {gpu["index"]: handle for _, handle, gpu in asked}, until)
    if not whole:
        answer["skipped"].append("pairs")
    answer["errors"] = system.errors
    return answer


def main() -> int:
    """Print the answer; 3 without pynvml, 4 where NVML does not start."""
    try:
        import pynvml
    except ImportError:
        print("pynvml is not installed (pip install nvidia-ml-py)", file=sys.stderr)
        return 3
    try:
        pynvml.nvmlInit()
    except Exception as error:
        print(f"NVML: {words(error)}", file=sys.stderr)
        return 4
    answer = look(pynvml)
    try:
        pynvml.nvmlShutdown()
    except Exception as error:
        answer["errors"]["nvmlShutdown"] = words(error)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
