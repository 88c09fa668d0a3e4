"""What the ranks of a job printed, held against each other and against the host they ran on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import quote

from gpudoctor.checkers.fabric import FABRIC
from gpudoctor.checkers.nccl_diagnostics import complained
from gpudoctor.checkers.nccl_env import NCCL_ENV
from gpudoctor.checkers.nccl_notices import remarked
from gpudoctor.checkers.nccl_pcie import overrated
from gpudoctor.checkers.nccl_rules import Around, on_one_host, release_of
from gpudoctor.checkers.nccl_settings import ALIKE, settings, some
from gpudoctor.checkers.nccl_switches import RULES
from gpudoctor.checkers.nccl_view import Ranks, gpu_of, host_of, named
from gpudoctor.checkers.numa import NUMA_MISMATCH
from gpudoctor.checkers.p2p import UNSUPPORTED
from gpudoctor.checkers.pair_path import PHB, SYS
from gpudoctor.checkers.traffic import can_peer
from gpudoctor.checkers.version_mismatch import VERSION_MISMATCH
from gpudoctor.checkers.visibility import GPU_NOT_VISIBLE
from gpudoctor.facts.bandwidth import Bandwidth
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.nccl import Nccl, NcclComm, NcclMessage, NcclProc, bdf_of
from gpudoctor.facts.store import FactView
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.facts.topology import Nics, Pairs
from gpudoctor.model import CERTAIN, ERROR, LIKELY, NOTE, WARNING, CannotTell, Evidence, Finding, Step
from gpudoctor.record import replace

# First release of NCCL with kernels for a part (release notes and nccl-tests issue 287).
_OLDEST = (2, 4)
_NEEDS = ((re.compile(r"RTX 50\d0|RTX PRO \d+ Blackwell"), (2, 26), "2.26"),)


def judged(facts: FactView) -> Iterator[Finding | CannotTell]:
    """Communicator by communicator, then what the whole log says."""
    nccl = facts[Nccl]
    differing: set[str] = set()
    for comm in nccl:
        yield from settings(comm, nccl.told_by(comm), differing)
        yield from _versions(comm, facts)
        yield from _unseen(comm, facts)
    yield from _harmful(nccl, facts)
    yield from _refused(nccl, facts)
    yield from _without_nvls(nccl)
    yield from _without_file(nccl)
    yield from remarked(nccl)
    yield from _affinity(nccl, facts)
    yield from _far(nccl, facts)
    yield from overrated(nccl, facts)
    yield from complained(nccl, ALIKE, differing, facts.get(Bandwidth) is not None)


def _versions(comm: NcclComm, facts: FactView) -> Iterator[Finding]:
    ranks = Ranks(comm)
    by_version: dict[str, list[int]] = {}
    for number, proc in sorted(ranks.proc.items()):
        if proc.version is not None:
            by_version.setdefault(proc.version, []).append(number)
    if len(by_version) > 1 and not any(m.family == "version-of-ranks" for m in comm.messages):
        told = ", ".join(f"{v} on rank{'s' if len(r) > 1 else ''} {some(r)}" for v, r in by_version.items())
        spots = [ranks.rank[r[0]].at("rank") for r in by_version.values()]
        yield Finding(
            VERSION_MISMATCH.slug, ERROR, "host", f"The ranks run different NCCL versions: {told}. Their messages do not fit together.",
            tuple(spots[:4]), CERTAIN, "init fails or hangs",
            (Step("See which library each rank loads", "python3 -c 'import torch; print(torch.cuda.nccl.version())'; ldconfig -p | grep libnccl"),),
        )  # fmt: skip
    if comm.version is None or any(m.slug == VERSION_MISMATCH.slug for m in comm.messages):
        return
    version = tuple(int(p) for p in comm.version.split(".")[:2])
    if version < _OLDEST:
        spot = next(
            (r.at("rank") for r in comm.ranks), Evidence(comm.source, "version line", f"NCCL version {comm.version}")
        )
        yield Finding(
            VERSION_MISMATCH.slug, NOTE, "host",
            f"NCCL {comm.version} is too old to judge: it prints little of what it decides, and it has no kernels for GPUs newer than Volta.",
            (spot,), remediation=(Step("Install a current NCCL, or a PyTorch that brings one", "pip install -U nvidia-nccl-cu12", "reversible"),),
        )  # fmt: skip
    for number, rank in ranks.rank.items():
        gpu = gpu_of(rank, ranks.home(number, facts).get(Gpus))
        for pattern, needed, word in _NEEDS:
            if gpu is not None and gpu.name and pattern.search(gpu.name) and version < needed:
                yield Finding(
                    VERSION_MISMATCH.slug, ERROR, "host", f"NCCL {comm.version} is older than {gpu.name}, which needs {word} or later.",
                    (rank.at("rank"), gpu.at("name")), LIKELY, "collectives fail",
                    (Step("Install a newer NCCL, or a PyTorch that brings one", "pip install -U nvidia-nccl-cu12", "reversible", "python3 -c 'import torch; print(torch.cuda.nccl.version())'"),),
                )  # fmt: skip
                return


def _unseen(comm: NcclComm, facts: FactView) -> Iterator[Finding]:
    """GPUs of a host that no rank uses, where every rank of the communicator is known."""
    ranks = Ranks(comm)
    if len(ranks.rank) != comm.nranks or not facts.several and comm.nnodes != 1:
        return
    for part, home in ranks.parts(facts):
        gpus = home.get(Gpus)
        if gpus is None or not gpus.complete or len(gpus.listed) <= len(part.rank):
            continue
        used = [gpu_of(r, gpus) for r in part.rank.values()]
        if None in used:
            continue
        left = [g for g in gpus.listed if g not in used]
        if left:
            yield Finding(
                GPU_NOT_VISIBLE.slug, NOTE, "host",
                f"The {len(part.rank)} ranks {'' if comm.nnodes == 1 else 'here '}use {len(set(map(id, used)))} of this host's {len(gpus.listed)} GPUs; {', '.join(g.label for g in left[:8])} took no part.",
                (next(iter(part.rank.values())).at("nranks"), left[0].at("index")), CERTAIN, None,
                (Step("Only if all should work: start a rank for each, and see what the job is given", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"),),
                host=host_of((p.host for p in part.proc.values()), home, facts),
            )  # fmt: skip


def _homes(nccl: Nccl, facts: FactView) -> dict[FactView, list[NcclProc]]:
    """Every machine's facts with the processes that ran there."""
    out: dict[FactView, list[NcclProc]] = {}
    for proc in nccl.procs:
        out.setdefault(facts.on(proc.host), []).append(proc)
    return out


def _harmful(nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    """The rules for settings, applied to what NCCL says it took: on each machine by what that machine has."""
    said: set[tuple[str, str]] = set()
    if not facts.several:
        yield from _by_rules(nccl, tuple(nccl.settings), nccl.procs, facts, said)
        return
    for home, procs in _homes(nccl, facts).items():
        taken = dict.fromkeys((n, v) for p in procs for n, v in p.env.items())
        for found in _by_rules(nccl, tuple(taken), procs, home, said):
            yield replace(found, host=host_of((p.host for p in procs), home, facts))


def _by_rules(
    nccl: Nccl, values: Iterable[tuple[str, str]], procs: Iterable[NcclProc], home: FactView, said: set[tuple[str, str]]
) -> Iterator[Finding]:
    known = {(s.name, s.value.strip()) for s in home.get(Settings) or ()}
    taken = Settings(
        tuple(
            Setting(name=name, value=value, scope="environment", origin={"*": nccl.settings[name, value]})
            for name, value in values
            if (name, value) not in known and name.startswith("NCCL_") and (name, value) in nccl.settings
        )
    )
    pairs = home.get(Pairs)
    nvlink = any(p.path == "NVL" for p in pairs or ()) or any(p.fabric_state == 3 or p.nvlink_gbs for p in procs)
    around = Around(pairs=pairs, nics=home.get(Nics), nvlink=nvlink, one_host=on_one_host(nccl), release=release_of(nccl))
    # Where ranks differ, each value is a setting of its own to the rules.
    for setting in taken:
        for rule in RULES:
            for advice in rule(Settings((setting,)), around):
                if (advice.setting.name, advice.words) in said:
                    continue
                said.add((advice.setting.name, advice.words))
                steps = (Step(f"Unset it where the job is started. {advice.then}", f"unset {setting.name}", "reversible", advice.verify),) if advice.then else ()
                yield Finding(
                    NCCL_ENV.slug, advice.severity, "host", f"{setting.name}={setting.value}: {advice.words}",
                    (setting.at("value"), *advice.evidence), advice.confidence, advice.cost, steps,
                )  # fmt: skip


def _refused(nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    """The driver's refusals that NCCL mentions and then goes on without, a machine at a time."""
    machines: dict[FactView, list[NcclMessage]] = {}
    for message in nccl.messages:
        if message.family in ("p2p-refused", "p2p-could-not-enable") and "a" in message.fields:
            machines.setdefault(facts.on(message.host), []).append(message)
    for home, messages in machines.items():
        pairs: dict[tuple[int, int], Evidence] = {}
        for message in messages:
            a, b = sorted((int(message.fields["a"]), int(message.fields["b"])))
            pairs.setdefault((a, b), message.at("text"))
        gpus = home.get(Gpus)
        able = [
            can_peer(g) for i in {n for p in pairs for n in p} if gpus is not None and (g := gpus.by_index(i)) is not None
        ]
        by_design = bool(able) and all(a is False for a in able)
        ordered = sorted(pairs)
        yield Finding(
            UNSUPPORTED.slug, NOTE if by_design else WARNING, f"pair:{ordered[0][0]}-{ordered[0][1]}" if len(ordered) == 1 else "host",
            f"The driver refuses peer access between GPUs {named(ordered)}, so NCCL goes through host memory there. "
            + ("These parts have no peer to peer: nothing to repair." if by_design else "Consumer cards and many virtual machines are like that by design; else the driver, the hypervisor or a BIOS setting is behind it."),
            tuple(pairs[p] for p in ordered[:4]), CERTAIN, None,
            (Step("See the driver's word for each pair", "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w"),),
            host=host_of((m.host for m in messages), home, facts),
        )  # fmt: skip


def _without_nvls(nccl: Nccl) -> Iterator[Finding]:
    """NVLS could not be set up and the run went on."""
    told = [m for m in nccl.messages if m.family == "nvls-bind-fallback"]
    if told:
        yield Finding(
            FABRIC.slug, WARNING, "host",
            "Reduction inside the NVSwitches (NVLS) could not be set up, and NCCL went on without it: Fabric Manager or a switch is not in order.",
            tuple(m.at("text") for m in told[:3]), LIKELY, "the gain of NVLS in an all-reduce",
            (
                Step("Compare the versions and the state", "nvidia-smi -q | grep -A3 Fabric; nv-fabricmanager --version; systemctl status nvidia-fabricmanager"),
                Step("Restart Fabric Manager while no job runs", "sudo systemctl restart nvidia-fabricmanager", "disruptive", "the next log has `NVLS comm`"),
            ),
        )  # fmt: skip


def _without_file(nccl: Nccl) -> Iterator[Finding]:
    """NCCL warns of a topology file that it cannot open only where a variable names it, and goes on."""
    told = {m.fields["file"]: m for m in reversed(nccl.messages) if m.family == "xml-absent" and "file" in m.fields}
    for path, message in told.items():
        yield Finding(
            NCCL_ENV.slug, WARNING, "host",
            f"NCCL_TOPO_FILE or NCCL_GRAPH_FILE names {path}, which cannot be opened here: NCCL goes on with what it finds by itself.",
            (message.at("text"),), CERTAIN, None,
            (Step("See who sets it, and whether the file is there (in a container: mounted)", f"env | grep -E 'NCCL_(TOPO|GRAPH)_FILE'; ls -l {quote(path)}"),),
        )  # fmt: skip


def _affinity(nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    """`Affinity for GPU 3 is empty … (GPU affinity = 32-63 ; CPU affinity = 0-31)`: the launcher bound it elsewhere."""
    for proc in nccl.procs:
        for index, text in proc.affinity.items():
            found = re.match(r"forced (\S+) (\S+)$", text)
            if found is None:
                continue
            some = next((r for r in proc.ranks if r.nvml_dev == index), None)
            yield Finding(
                NUMA_MISMATCH.slug, WARNING, f"gpu:{index}",
                f"{f'Rank {some.rank}' if some is not None else 'A process'} is bound to CPUs {found[2]}, but GPU {index} belongs to CPUs {found[1]}: the launcher put it on another NUMA node.",
                (nccl.seen.get(f"affinity {index}") or proc.at("affinity"),), LIKELY, "host copies and network traffic cross the link between sockets",
                (Step("Bind each rank to the node of its GPU, or not at all", "srun --cpu-bind=none COMMAND   # or numactl --cpunodebind=NODE per rank", "reversible", "taskset -cp PID"),),
                host=host_of((proc.host,), facts.on(proc.host), facts),
            )  # fmt: skip


def _far(nccl: Nccl, facts: FactView) -> Iterator[Finding]:
    """Path types of NCCL's topology dump, where no matrix of the host says more."""
    worst: dict[str, list[tuple[str, str]]] = {}
    for proc in nccl.procs:
        for path in proc.paths if facts.on(proc.host).get(Pairs) is None else ():
            if path.type in ("PHB", "SYS") and (path.a, path.b) not in worst.setdefault(path.type, []):
                worst[path.type].append((path.a, path.b))
    for kind, cause in (("PHB", PHB), ("SYS", SYS)):
        pairs = worst.get(kind, [])
        spot = nccl.seen.get(f"path {kind}")
        if pairs and spot is not None:
            shown = ", ".join(f"{bdf_of(a)} to {bdf_of(b)}" for a, b in pairs[:3]) + (
                f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
            )
            words = "the host bridge of one NUMA node" if kind == "PHB" else "the link between sockets"
            yield Finding(
                cause.slug, NOTE, "host",
                f"In NCCL's view {len(pairs)} pair{'s' if len(pairs) != 1 else ''} of GPUs reach{'es' if len(pairs) == 1 else ''} each other over {words} ({shown}). "
                "NCCL also writes this where the driver refuses peer to peer, whatever the distance.",
                (spot,), LIKELY,
            )  # fmt: skip
