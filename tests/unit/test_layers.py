"""Imports point one way only: who may import whom, read from the source and not from what a run happens to load."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "gpudoctor"

# Modules that stand beside the packages, by what they belong to.
GROUND = (
    "bdf", "chipsets", "cpulist", "median", "model", "nccl_defaults", "nccl_diagnostics", "nccl_messages", "nccl_variables", "parts", "pattern", "pcie",
    "record", "required", "sayings", "shipped", "xids",
)  # fmt: skip
LAYER_OF = {
    **dict.fromkeys(GROUND, "ground"), "hang": "hang", "hang_views": "hang", "hang_pairs": "hang", "hang_dumps": "hang", "ingest": "ingest", "discover": "engine",
    "engine": "engine", "judge": "judge", "__main__": "cli", "__init__": "ground",
}  # fmt: skip
# What each layer may import besides itself.
MAY = {
    "probe": (),  # child programs: they must run where nothing of ours can be imported
    "ground": (),
    "facts": ("ground",),
    "read": ("ground", "facts"),
    "collect": ("ground", "facts", "read"),
    "parsers": ("ground", "facts", "read"),
    "ingest": ("ground", "facts", "read", "collect"),  # parsers are found by name
    "hang": ("ground", "facts"),
    "expect": ("ground", "facts"),
    "checkers": ("ground", "facts", "hang", "expect"),
    "correlate": ("ground", "facts", "hang"),
    "engine": ("ground", "facts", "checkers"),
    "judge": ("ground", "facts", "ingest", "engine", "correlate"),
    "policy": ("ground", "facts", "read", "ingest", "engine", "correlate", "judge"),
    "diff": ("ground", "facts", "read", "correlate"),
    "report": ("ground", "facts", "read", "hang", "expect", "checkers", "engine", "diff"),
    "bandwidth": ("ground", "facts", "read", "collect", "ingest", "expect", "checkers", "engine", "judge"),
}
EXCEPTIONS = {
    # Gigabytes of NCCL's lines are not kept to be parsed later: they are read as they stream by.
    ("gpudoctor.read.nccl_bulk", "parsers"),
    ("gpudoctor.read.team", "marshal"),  # between a process and its own children, never from a file
}

PURE = ("facts", "checkers", "correlate", "diff", "expect", "hang", "parsers")
PURE_MODULES = tuple(n for n in GROUND if n != "shipped")
OUTSIDE_WORLD = ("subprocess", "os", "time", "socket", "pathlib", "shutil", "tempfile", "signal", "ctypes", "urllib", "http")
CHILDREN_ONLY = ("torch", "pynvml", "pyudev")
NEVER = ("pickle", "marshal", "shelve", "dill", "cloudpickle")
LATE_ONLY = ("jinja2", "matplotlib")  # extras that may be absent, and slow


class Module:
    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self.tree = ast.parse(path.read_text())

    @property
    def layer(self) -> str:
        first, *rest = self.name.split(".")[1:]
        return first if rest else LAYER_OF.get(first, f"no layer: {first}")

    def imports(self) -> Iterator[tuple[str, int]]:
        """Dotted names with their lines: import statements anywhere, and importlib.import_module of a plain string."""
        for node in ast.walk(self.tree):
            yield from _imported(node)

    def imports_at_start(self) -> Iterator[tuple[str, int]]:
        inside = {id(n) for f in ast.walk(self.tree) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for n in ast.walk(f)}
        for node in ast.walk(self.tree):
            if id(node) not in inside:
                yield from _imported(node)


def _imported(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        yield from ((a.name, node.lineno) for a in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide where they point"
        for alias in node.names:
            yield f"{node.module}.{alias.name}" if _is_module(f"{node.module}.{alias.name}") else str(node.module), node.lineno
    elif isinstance(node, ast.Call) and _called(node).endswith(("import_module", "__import__")) and node.args:
        if isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value), node.lineno


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


MODULES = [Module(p) for p in sorted(PACKAGE.rglob("*.py"))]


def ours() -> Iterator[tuple[Module, str, int]]:
    for module in MODULES:
        for name, line in module.imports():
            if name.split(".")[0] == "gpudoctor":
                yield module, name, line


def layer(name: str) -> str:
    parts = name.split(".")
    if len(parts) == 1:
        return "ground"  # gpudoctor itself: its version
    return LAYER_OF.get(parts[1], parts[1])


def test_every_module_has_a_layer() -> None:
    assert [m.name for m in MODULES if m.layer not in MAY and m.layer != "cli"] == []


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module, name, line in ours()
        if module.layer != "cli"
        and layer(name) != module.layer
        and layer(name) not in MAY[module.layer]
        and (module.name, layer(name)) not in EXCEPTIONS
    ]
    assert wrong == []


def test_the_layers_have_no_way_round() -> None:
    """The table itself is one way: no layer reaches itself through those that it may import."""

    def reached(name: str) -> set[str]:
        return {n for other in MAY[name] for n in (other, *reached(other))}

    assert [name for name in MAY if name in reached(name)] == []


def test_what_judges_touches_nothing_of_the_host() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in MODULES
        if module.layer in PURE or module.name.removeprefix("gpudoctor.") in PURE_MODULES
        for name, line in module.imports()
        if name.split(".")[0] in OUTSIDE_WORLD
    ]
    assert wrong == []


@pytest.mark.parametrize(("names", "layers"), [(CHILDREN_ONLY, ("probe",)), (NEVER, ())])
def test_what_is_imported_in_few_places_or_none(names: tuple[str, ...], layers: tuple[str, ...]) -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in MODULES
        if module.layer not in layers
        for name, line in module.imports()
        if name.split(".")[0] in names and (module.name, name) not in EXCEPTIONS
    ]
    assert wrong == []


def test_extras_are_imported_where_they_are_used() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in MODULES
        for name, line in module.imports_at_start()
        if name.split(".")[0] in LATE_ONLY
    ]
    assert wrong == []


def test_only_the_command_line_and_children_print_or_exit() -> None:
    wrong = []
    for module in MODULES:
        if module.layer in ("cli", "probe"):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name) and node.id in ("print", "exit", "quit", "input"):
                wrong.append(f"{module.name}:{node.lineno} {node.id}")
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr", "sys.exit"):
                wrong.append(f"{module.name}:{node.lineno} {ast.unparse(node)}")
    assert wrong == []


def test_no_text_is_ever_run() -> None:
    wrong = []
    for module in MODULES:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            shell = any(k.arg == "shell" and not (isinstance(k.value, ast.Constant) and k.value.value is False) for k in node.keywords)
            if shell or _called(node) in ("eval", "exec", "compile", "os.system", "os.popen", "subprocess.getoutput"):
                wrong.append(f"{module.name}:{node.lineno} {ast.unparse(node)[:80]}")
    assert wrong == []
