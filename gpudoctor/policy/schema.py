"""Every key a policy may have: read by the loader, and published as JSON Schema (data/policy.schema.json)."""

from __future__ import annotations

from typing import Any

from gpudoctor.facts.topology import PATHS
from gpudoctor.policy import model, units
from gpudoctor.record import KeyedRecord

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
# What require_readable may name; policy/readable.py knows the facts.
READABLE = (
    "gpus", "pairs", "nvlinks", "pci", "acs", "nics", "numa", "kernel-log", "driver", "fabric-manager", "settings", "shm",
    "limits", "iommu", "modules", "platform",
)  # fmt: skip


class Key(KeyedRecord):
    """One key. kind: count, bool, text, texts, choice, path, paths, numbers, version, date, quantity, gpus, slugs, slug."""

    name: str
    kind: str
    help: str
    field: str | None = None  # of the record, where it is not the key's own name
    choices: tuple[str, ...] = ()
    quantity: units.Quantity | None = None
    least: int = 1
    required: bool = False


class Section(KeyedRecord):
    name: str
    record: type[KeyedRecord]
    help: str
    keys: tuple[Key, ...]
    repeated: bool = False  # [[name]]


def _key(name: str, kind: str, help: str, **more: Any) -> Key:
    return Key(name=name, kind=kind, help=help, **more)


def _severity() -> Key:
    return _key(
        "severity", "choice", "What a breach of this section is (default: error).", choices=("error", "warning")
    )


_PAIR_KEYS = (
    _key(
        "path",
        "paths",
        'The path of the pair: "PHB" is PHB or nearer; a list accepts just those. Nearest first: '
        + ", ".join(PATHS)
        + ".",
    ),
    _key("nvlinks", "count", "NVLinks that join the pair, at least."),
)
TOP = (
    _key("schema", "count", "Version of this format: 1."),
    _key("name", "text", "How reports call this policy."),
    _key(
        "on_unknown",
        "choice",
        "What a prolog does when the gate could not tell. The gate itself exits 3 in either case.",
        choices=("hold", "let-through"),
    ),
    _key(
        "require_readable",
        "texts",
        "Sources without which the gate could not tell, though a check would go on.",
        choices=READABLE,
    ),
)
SECTIONS = (
    Section(name="gpus", record=model.GpuRules, help="Which GPUs the node has.", keys=(
        _key("count", "count", "GPUs of the node, exactly; those hidden from this container count."),
        _key("model", "texts", 'Words that each GPU\'s name must have: "H200". A list accepts any of them.'), _severity())),
    Section(name="pairs", record=model.PairRules, help="How every pair of GPUs is joined.", keys=(*_PAIR_KEYS, _severity())),
    Section(name="pair", record=model.PairRules, repeated=True, help="Pairs that differ from [pairs].", keys=(
        _key("of", "texts", 'The pairs, by nvidia-smi\'s indices: "0-1".', required=True), *_PAIR_KEYS, _severity())),
    Section(name="pcie", record=model.PcieRules, help="The PCIe link of every GPU.", keys=(
        _key("generation", "count", "Generation at which the link runs, at least. Judged only by a reading under proven traffic: "
             "without one (no [measured], or host_copies off) the gate could not tell."),
        _key("capable_generation", "count", "Generation that card and slot allow, at least. Read at any time."),
        _key("width", "count", "Lanes that the link uses, at least."), _severity())),
    Section(name="nvlink", record=model.NvLinkRules, help="The NVLinks of every GPU.", keys=(
        _key("links", "count", "Active links of each GPU, at least."),
        _key("speed", "quantity", "Rate of each active link in one direction, at least.", field="speed_gbs", quantity=units.RATE), _severity())),
    Section(name="numa", record=model.NumaRules, help="Where the GPUs stand.", keys=(
        _key("of_gpus", "numbers", "NUMA node of each GPU, in the order of nvidia-smi's indices."),
        _key("known", "bool", "true: every GPU must tell its node."), _severity())),
    Section(name="nics", record=model.NicRules, help="RDMA network adapters.", keys=(
        _key("devices", "texts", 'Adapters that must be there, and the only ones judged: "mlx5_0". Default: all.'),
        _key("count", "count", "Adapters in the wanted state, at least."),
        _key("state", "choice", "State of each port.", choices=("active", "armed", "init", "down")),
        _key("rate", "quantity", "Rate of each port, at least.", field="rate_gbps", quantity=units.BITS),
        _key("nearest", "path", "Each GPU has an adapter at this path or nearer.", choices=PATHS[1:]), _severity())),
    Section(name="driver", record=model.DriverRules, help="The NVIDIA driver.", keys=(
        _key("min", "version", 'Oldest version: "550.54.15".'),
        _key("max", "version", 'Newest version; "580" takes every 580.x.'),
        _key("cuda_min", "version", 'Newest CUDA that the driver serves, at least: "12.4".'), _severity())),
    Section(name="environment", record=model.EnvironmentRules, help="Settings of NCCL and CUDA, from the environment and nccl.conf.", keys=(
        _key("forbid", "texts", '"NCCL_P2P_DISABLE" forbids the variable, "NCCL_P2P_DISABLE=1" that value.'), _severity())),
    Section(name="measured", record=model.MeasuredRules, help="What is measured after the check. The section alone asks for it.", keys=(
        _key("collective", "choice", "Default: all_reduce.", choices=COLLECTIVES),
        _key("gpus", "gpus", '"all" (default: those of this job), or how many.'),
        _key("min_busbw", "quantity", "Bus bandwidth that the large sizes level out at, at least.", field="min_busbw_gbs", quantity=units.RATE),
        _key("max_latency", "quantity", "Time of the smallest sizes, at most.", field="max_latency_us", quantity=units.TIME),
        _key("host_copies", "bool", "true: also copies between host and each GPU (default: false, true with min_host_copy)."),
        _key("min_host_copy", "quantity", "Rate of these copies in each direction, at least.", field="min_host_copy_gbs", quantity=units.RATE),
        _severity())),
    Section(name="findings", record=model.FindingRules, help="What the checks' findings count for.", keys=(
        _key("fail", "slugs", "Slugs whose findings are errors here."),
        _key("warn", "slugs", "Slugs whose findings are warnings here."))),
    Section(name="accept", record=model.Acceptance, repeated=True, help="Findings that somebody answers for, for a time.", keys=(
        _key("slug", "slug", "Of which check; `policy` for a breach of this file.", required=True),
        _key("subject", "text", 'Of which subject: "pair:0-1". Default: any.'),
        _key("reason", "text", "Why it is accepted.", required=True),
        _key("until", "date", "Last day on which it is: 2027-03-31.", required=True))),
)  # fmt: skip
NAMES = {s.name: s for s in SECTIONS}


def json_schema() -> dict[str, Any]:
    """The published form, for editors (TOML plugins read JSON Schema) and a team's own tools."""
    properties = {k.name: _schema(k) for k in TOP}
    properties["schema"] = {"const": 1, "description": TOP[0].help}
    for section in SECTIONS:
        table: dict[str, Any] = {
            "type": "object",
            "description": section.help,
            "additionalProperties": False,
            "properties": {k.name: _schema(k) for k in section.keys},
        }
        required = [k.name for k in section.keys if k.required]
        if required:
            table["required"] = required
        properties[section.name] = {"type": "array", "items": table} if section.repeated else table
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpudoctor policy",
        "description": "What a node must be. TOML, read by `gpudoctor gate --policy FILE`.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _schema(key: Key) -> dict[str, Any]:
    word: dict[str, Any] = {"type": "string", "minLength": 1}
    if key.choices:
        word = {"enum": list(key.choices)}
    several = {"type": "array", "items": word, "minItems": 1}
    if key.quantity is not None:
        names = "|".join(u.replace("/", "\\/") for u in key.quantity.accepted)
        word = {"type": "string", "pattern": f"^\\s*[0-9]+(\\.[0-9]+)?\\s*({names})\\s*$"}
    shapes: dict[str, dict[str, Any]] = {
        "count": {"type": "integer", "minimum": key.least},
        "bool": {"type": "boolean"},
        "texts": {"anyOf": [word, several]},
        "slugs": {"type": "array", "items": word},
        "paths": {"anyOf": [{"enum": list(PATHS)}, {"type": "array", "items": {"enum": list(PATHS)}, "minItems": 1}]},
        "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        "version": {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)*$"},
        "gpus": {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}]},
        "date": {"type": "string", "format": "date"},
    }
    return {**shapes.get(key.kind, word), "description": key.help}
