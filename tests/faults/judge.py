"""What is wrong with a run, in words; nothing where all is as promised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.collect.probes import by_id
from tests.faults.cells import BY_COMMAND, SMI, Cell
from tests.faults.run import Ended
from tests.faults.stage import BENCH, GROUPS, TORCH
from tests.faults.table import INTACT, LOST, PART

ESCAPE = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


def wrong(cell: Cell, ended: Ended) -> list[str]:
    """Every promise that this run breaks."""
    return [*manners(ended), *(verdict(cell, ended) if ended.status is not None else ())]


def manners(ended: Ended) -> Iterator[str]:
    """What holds for every run, whatever it meets."""
    if ended.status is None:
        yield "hang"
    if ended.left:
        yield f"left behind: {len(ended.left)}, {ended.left[0][-60:]}"
    if ended.files:
        yield f"temporary files: {', '.join(ended.files[:3])}"
    if b"Traceback" in ended.err or b"Exception ignored" in ended.err:
        yield f"traceback: {ended.err.decode('utf-8', 'replace').strip().splitlines()[-1][:150]}"
    if ESCAPE.search(ended.out.replace(b"\x1b[0m", b"")):
        yield "a control character on standard output"


def verdict(cell: Cell, ended: Ended) -> Iterator[str]:
    """Status, JSON, the reason."""
    may = allowed(cell)
    if ended.status not in may:
        kind = "false pass" if ended.status == 0 else "status"
        yield f"{kind}: {ended.status}, not {' or '.join(map(str, sorted(may)))}"
    if BY_COMMAND[cell.command].form != "json":
        yield from _text(cell, ended)
        return
    try:
        said = json.loads(ended.out)
    except ValueError as error:
        yield f"no JSON: {error}"
        return
    if said["exit_code"] != ended.status or said["verdict"] != {0: "pass", 1: "fail", 3: "unknown"}.get(said["exit_code"]):
        yield f"JSON says {said['verdict']} and {said['exit_code']}, the status is {ended.status}"
    if ended.status == 0 and BY_COMMAND[cell.command].looks and not whole(said):
        yield "false pass: 0 without every GPU, pair and PCIe link"
    if alarm := false_alarms(cell, said):
        yield f"false alarm: {', '.join(sorted(alarm))}"
    yield from _reason(cell, said)


def allowed(cell: Cell) -> set[int]:
    """The statuses that the promises leave."""
    fault = cell.sick
    if fault is None:
        return {0}
    if cell.program in (BENCH, TORCH):
        # Noise around a table that is whole (NULs are taken out), or the table on standard error, which is read too, takes nothing from it.
        noise = cell.program == BENCH and fault.id in ("latin1", "escapes", "nul", "stderr")
        return {0} if cell.program == BENCH and fault.leaves == INTACT else {0, 1, 3} if noise else {1, 3}
    if fault.leaves == INTACT:
        return {0}
    if cell.command.startswith("bandwidth"):
        # It needs the list of GPUs alone; what of it survives is enough.
        if cell.program != "the driver":
            return {0, 3} if fault.hangs else {0}
        # A driver out of order on a host with GPUs is a fault; one that hung or died had listed them before, and the run went well.
        return {0, 1, 3} if fault.leaves == PART or fault.hangs or fault.id.startswith("signal") else {1, 3}
    if fault.hangs:
        return {3}  # of nvidia-smi always; of another by --timeout
    if cell.program == "the driver":
        if cell.command == "check, nagios":
            return {2, 3} if fault.leaves == LOST else {0, 1, 2, 3}
        judged = cell.command in ("facts", "capture")
        return {3} if judged and fault.leaves == LOST else {1, 3} if fault.leaves == LOST else {0, 1, 3}
    if fault.leaves == PART and (cell.program in GROUPS or cell.program in SMI):
        return {0, 3}
    return {0}


def whole(said: dict[str, Any]) -> bool:
    """Is there what a verdict of health needs?"""
    facts = said["facts"]
    gpus, pairs = facts.get("gpus") or [], facts.get("pairs") or []
    linked = all(g["pcie"]["width"] and g["pcie"]["speed_gts"] for g in gpus)
    return len(gpus) == 2 and linked and [p["path"] for p in pairs] == ["NVL"]


def false_alarms(cell: Cell, said: dict[str, Any]) -> set[str]:
    """Errors and warnings on a host that has none but a sick tool."""
    if cell.program in (BENCH, TORCH):
        return set()
    about_it = {"driver-unavailable"} if cell.program in (*GROUPS, *SMI) else set()
    return {f["slug"] for r in said["results"] for f in r["findings"] if f["severity"] != "note"} - about_it


def _reason(cell: Cell, said: dict[str, Any]) -> Iterator[str]:
    """A lost answer is named: which program, and why."""
    fault = cell.sick
    if fault is None or fault.leaves != LOST or cell.program in (BENCH, TORCH) or not BY_COMMAND[cell.command].looks:
        return
    for program in GROUPS.get(cell.program, (cell.program,)):
        probe = by_id(program)
        assert probe is not None
        if probe.argv[0] == "{python}" and fault.whole:
            continue  # a fault of a file is nvidia-smi's alone
        reasons = [m["reason"] for m in said["missing"] if probe.shown in m["fact"]]
        if not any(fault.says in reason for reason in reasons):
            yield f"{probe.shown}: not said that {fault.says!r} ({'; '.join(reasons)[:80] or 'nothing'})"
            return


def _text(cell: Cell, ended: Ended) -> Iterator[str]:
    form = BY_COMMAND[cell.command].form
    if not ended.out.strip():
        yield "nothing on standard output"
    elif form == "line" and ended.out.count(b"\n") != 1:
        yield "not one line"
    try:
        text = ended.out.decode()
    except UnicodeDecodeError:
        yield "not UTF-8"
        return
    fault = cell.sick
    if form == "text" and fault is not None and fault.leaves == LOST and fault.says not in " ".join(text.split()):
        yield f"not said that {fault.says!r}"
