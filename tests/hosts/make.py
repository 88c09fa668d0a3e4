"""Write the made-up hosts to fixtures/hosts: `python -m tests.hosts.make`. A test checks that they are current."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from gpudoctor.collect.probes import PROBES
from tests.hosts.children import nvml_json, system_json
from tests.hosts.heroes import HEROES, Hero
from tests.hosts.outputs import Spec, lspci, nvlink_errors, nvlink_status, p2p, pci_json, smi_xml, topo
from tests.support import FIXTURES

ORIGIN = "synthetic: made by tests/hosts from the shapes of real outputs, not recorded on a machine"


def outputs(spec: Spec) -> dict[str, str]:
    """Probe id -> what it prints."""
    out = {
        "smi-q-x": smi_xml(spec),
        "smi-topo-m": topo(spec),
        "smi-nvlink-s": nvlink_status(spec),
        "smi-nvlink-e": nvlink_errors(spec),
        "nvml": nvml_json(spec),
        "pci": pci_json(spec),
        "system": system_json(spec),
        "lspci": lspci(spec),
        "dmesg": spec.dmesg or f"2026-11-01T00:00:01,000000+00:00 NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {spec.driver}\n",
        "fabricmanager": "LoadState=loaded\nActiveState=active\nSubState=running\n" if spec.fabric else "LoadState=not-found\nActiveState=inactive\nSubState=dead\n",
    }
    out |= {f"smi-topo-p2p-{c}": p2p(spec, c) for c in "rwna"}
    if spec.jobs is not None:
        out["job"] = json.dumps({"probe": "gpudoctor.job", "schema": 1, "processes": spec.jobs}) + "\n"
    return out


def files(hero: Hero) -> dict[str, str]:
    """File name -> content of one snapshot directory."""
    spec, made = hero.spec, {}
    probes = []
    printed = outputs(spec)
    for probe in PROBES:
        if probe.id not in printed:
            continue
        entry: dict[str, object] = {"id": probe.id, "argv": list(probe.argv)}
        if any(probe.id.startswith(p) for p in spec.hang):
            probes.append({**entry, "file": None, "status": "timeout", "rc": None, "seconds": 30.0, "timeout_s": 30.0, "sha256": None, "bytes": 0})
            continue
        text = printed[probe.id]
        made[f"{probe.id}.out"] = text
        about = {"file": f"{probe.id}.out", "status": "ok", "rc": 0, "seconds": 0.1}
        probes.append({**entry, **about, "sha256": hashlib.sha256(text.encode()).hexdigest(), "bytes": len(text.encode())})
    manifest = {
        "schema": 1,
        "tool": {"name": "gpudoctor", "version": "0.1.0"},
        "captured_at": "2026-11-29T00:00:00Z",
        "host": "node07",
        "origin": f"{ORIGIN}; {spec.note}",
        "probes": probes,
    }
    made["manifest.json"] = json.dumps(manifest, indent=1) + "\n"
    expect = {"exit": hero.exit, "causes": hero.causes, "notes": hero.notes, "explains": hero.explains, "never": hero.never}
    made["expect.json"] = json.dumps(expect, indent=1) + "\n"
    return made


def main() -> None:
    for build in HEROES:
        hero = build()
        folder = Path(FIXTURES / "hosts" / hero.spec.name)
        golden = {p.name: p.read_text() for p in (folder / "golden").glob("*")} if folder.is_dir() else {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files(hero).items():
            (folder / name).write_text(text)
        if golden:
            (folder / "golden").mkdir()
            for name, text in golden.items():
                (folder / "golden" / name).write_text(text)


if __name__ == "__main__":
    main()
