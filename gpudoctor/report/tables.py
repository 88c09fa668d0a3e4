"""Facts as tables, for `gpudoctor facts`."""

from __future__ import annotations

from typing import Any

from gpudoctor.model import Report
from gpudoctor.report.facts import facts_json
from gpudoctor.report.layout import Style, hanging

_STYLE = Style()
_TUNING = "NCCL's model of its algorithms (NCCL_DEBUG_SUBSYS=TUNING)"
_CHOICES = "What NCCL chose (NCCL_DEBUG_SUBSYS=TUNING)"
_TITLES = {
    "gpus": "GPUs",
    "pairs": "Pairs",
    "nvlinks": "NVLinks",
    "nics": "NICs",
    "nic_paths": "GPU to NIC",
    "pci": "PCI devices",
    "xid": "Xid",
    "tool_tests": "Tests of DCGM",
    "peer_copies": "Copies between GPUs (on: peer access, off: through host memory)",
}


def render(report: Report) -> str:
    """Every family that was read, as one table; unknown values are shown as `?`, never as zero."""
    from tabulate import tabulate

    parts: list[str] = []
    facts = facts_json(report.hosts)  # type: ignore[arg-type]
    for family, entries in facts.items():
        title = _TITLES.get(family, family)
        if not entries:
            parts.append(f"{title}: none")
            continue
        tuning = [row for entry in entries for row in entry.get("tuning") or ()] if family == "nccl" else []
        shown = {title: [_flat(_row(entry)) for entry in entries]}
        if tuning:
            shown[_TUNING] = tuning
        chosen = [row for entry in entries for row in entry.get("choices") or ()] if family == "nccl" else []
        if chosen:
            shown[_CHOICES] = list({tuple(row.values()): row for row in chosen}.values())
        for name, rows in shown.items():
            columns = [c for c in dict.fromkeys(k for row in rows for k in row) if any(row.get(c) is not None for row in rows)]
            body = [[_cell(row.get(c)) for c in columns] for row in rows]
            parts.append(f"{name}\n" + tabulate(body, headers=columns, tablefmt="plain", disable_numparse=True))
    for missing in report.missing:
        parts.append("\n".join(hanging("Not read: ", "  ", f"{missing.fact}: {missing.reason}", _STYLE)))
    return "\n\n".join("\n".join(_STYLE.plain(line) for line in part.split("\n")) for part in parts) + "\n"


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    """Without what is a table of its own, or too long for a column."""
    row = {k: v for k, v in entry.items() if k not in ("tuning", "choices", "init")}
    if entry.get("init"):
        row["init_seconds"] = entry["init"]["seconds"]
    return row


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    """`pcie: {width: 16}` -> `width: 16`: nested objects become columns."""
    out: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, dict) and key != "acs":
            out.update(value)
        else:
            out[key] = value
    return out


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{k}{'+' if v else '-'}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
