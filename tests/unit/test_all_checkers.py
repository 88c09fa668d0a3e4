"""What every registered checker must hold, whoever wrote it."""

import ast
import configparser
import re

import pytest

from gpudoctor.discover import find, load
from gpudoctor.engine import run
from gpudoctor.facts.base import Entry, Fact
from gpudoctor.facts.store import FactStore, FactView
from gpudoctor.model import SKIPPED, CannotTell
from tests.support import HERE, ROOT, store

PLUGINS = load([p for p in find() if p.value.startswith("gpudoctor.")])
CHECKERS = {type(c).__name__: c for c in PLUGINS.checkers}
CAUSES = {c.slug: c for c in PLUGINS.causes}


def kinds_of(checker):
    return tuple(dict.fromkeys((*checker.needs, *checker.any_of, *checker.wants)))


def empty(kind):
    """A fact of this family in which nothing is known: the emptiest a parser may yield."""
    values = {}
    hints = {n: str(t) for base in reversed(kind.__mro__) for n, t in getattr(base, "__annotations__", {}).items()}
    for name in kind._fields:
        if name in kind._defaults:
            continue
        hint = hints[name]
        if hint.startswith("tuple"):
            values[name] = ()
        elif hint.startswith(("Mapping", "dict")):
            values[name] = {}
        elif hint.startswith("str"):
            values[name] = ""
        elif hint.endswith("Entry"):
            module = __import__(kind.__module__, fromlist=[hint])
            entry = getattr(module, hint)
            values[name] = entry(**{n: "" for n in entry._fields if n not in entry._defaults}, origin=HERE)
        else:
            raise AssertionError(f"{kind.__name__}.{name}: {hint}: teach this test how an empty one looks")
    return kind(**values)


def test_all_plugins_load():
    assert PLUGINS.failures == ()
    assert CHECKERS and CAUSES


def test_an_empty_store_is_never_healthy():
    for result in run(PLUGINS, [FactStore(None, ())]):
        assert result.status == SKIPPED, f"{result.slug}: {result.status}"
        assert result.reason and len(result.reason) > 10, f"{result.slug} gives no reason"


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("name", CHECKERS)
def test_empty_facts_break_nothing(name, recorded):
    checker = CHECKERS[name]
    kinds = kinds_of(checker)
    for chosen in (kinds, *((k, *checker.needs) for k in kinds)):
        made = store(*(empty(k) for k in dict.fromkeys(chosen)), recorded=recorded)
        for said in checker.check(FactView(made, frozenset(kinds))):
            assert isinstance(said, CannotTell), f"{name} finds {said} in nothing"
            assert len(said.reason) > 10


@pytest.mark.parametrize("name", CHECKERS)
def test_entries_without_values_break_nothing(name):
    """One entry of each family that is named and otherwise unknown: a GPU with an index and nothing else."""
    checker = CHECKERS[name]
    kinds = kinds_of(checker)
    made = store(*(_bare(k) for k in kinds))
    for said in checker.check(FactView(made, frozenset(kinds))):
        assert said.slug in {c.slug for c in checker.causes}


def _bare(kind):
    fact = empty(kind)
    for name in kind._fields:
        hint = str(kind.__annotations__.get(name, ""))
        match = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", hint)
        entry = getattr(__import__(kind.__module__, fromlist=["x"]), match[1], None) if match else None
        if isinstance(entry, type) and issubclass(entry, Entry):
            lacking = {}
            for field in entry._fields:
                if field not in entry._defaults:
                    wanted = str(entry.__annotations__.get(field, "str"))
                    lacking[field] = 0 if wanted.startswith("int") else 0.0 if wanted.startswith("float") else () if wanted.startswith("tuple") else "x"
            return type(fact)(**{**fact.__dict__, name: (entry(**{**lacking, "origin": HERE}),)})
    return fact


@pytest.mark.parametrize("slug", CAUSES)
def test_the_catalogue_is_worth_reading(slug):
    cause = CAUSES[slug]
    assert re.fullmatch(r"GD\d{3}", cause.code)
    for part, least in (("title", 10), ("severity", 4), ("reasoning", 120), ("evidence", 5), ("remedy", 20)):
        text = getattr(cause, part)
        assert len(text) >= least and "…" != text.strip(), f"{slug}: {part} says nothing"
    assert any(word in cause.severity for word in ("error", "warning", "note"))
    for threshold in cause.thresholds:
        assert threshold.name and threshold.unit and threshold.source and re.match(r"20\d\d", threshold.date)


def test_codes_and_slugs_are_unique():
    assert len({c.code for c in CAUSES.values()}) == len(CAUSES)


def test_a_slug_said_by_two_checkers_is_one_cause():
    seen = {}
    for checker in CHECKERS.values():
        for cause in checker.causes:
            assert seen.setdefault(cause.slug, cause) is cause, f"{cause.slug} has two catalogue entries"


@pytest.mark.parametrize("name", CHECKERS)
def test_declarations(name):
    checker = CHECKERS[name]
    assert checker.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", checker.name)
    assert checker.needs or checker.any_of, f"{name} would run on nothing"
    kinds = (*checker.needs, *checker.any_of, *checker.wants)
    assert all(issubclass(k, Fact) and k.label for k in kinds)


def classes_in_files():
    """Every class of gpudoctor/checkers that says it is a checker, read without importing."""
    found = set()
    for path in sorted((ROOT / "gpudoctor" / "checkers").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            bases = [ast.unparse(b) for b in node.bases] if isinstance(node, ast.ClassDef) else []
            if "BaseChecker" in bases and not node.name.startswith("_"):
                found.add(f"gpudoctor.checkers.{path.stem}:{node.name}")
    return found


def test_setup_cfg_and_files_name_the_same_checkers():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = [line.partition("=") for line in config["options.entry_points"]["gpudoctor.checkers"].split("\n") if "=" in line]
    assert {value.strip() for _, _, value in lines} == classes_in_files()
    names = [name.strip() for name, _, _ in lines]
    assert len(set(names)) == len(names)


