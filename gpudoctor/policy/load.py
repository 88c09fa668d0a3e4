"""TOML text to a Policy, or every mistake in it with its line and what was probably meant."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpudoctor.facts.topology import PATHS
from gpudoctor.policy import units
from gpudoctor.policy.lines import Path, line_of, places
from gpudoctor.policy.model import EnvironmentRules, FindingRules, MeasuredRules, PairRules, Policy
from gpudoctor.policy.schema import NAMES, SECTIONS, TOP, Key, Section
from gpudoctor.read.text import clean
from gpudoctor.record import replace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,5}){0,4}")
_PAIR = re.compile(r"(\d{1,3})-(\d{1,3})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:=.*)?")
_AT = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")


class PolicyError(Exception):
    """Everything that is wrong with a policy, one message a mistake, each with its place."""

    def __init__(self, source: str, mistakes: list[tuple[int | None, str]]) -> None:
        self.mistakes = sorted(mistakes, key=lambda m: (m[0] is None, m[0] or 0))
        lines = [f"{source}:{line}: {words}" if line else f"{source}: {words}" for line, words in self.mistakes]
        super().__init__("\n".join(clean(line) for line in lines))


class _Wrong(Exception):
    """One value that cannot be."""


def load(text: str, source: str, slugs: Collection[str], taken: Callable[[str], bool] = lambda name: True) -> Policy:
    """source: the file, for messages. slugs: of the catalogue, which the policy may name. taken: is this variable read at all?

    Raises PolicyError.
    """
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise PolicyError(source, [(None, "no TOML that can be read: nested too deep")]) from None
    except tomllib.TOMLDecodeError as error:
        at = _AT.search(str(error))
        words = _AT.sub("", str(error)).strip()
        line = int(at[1]) if at and at[1] else text.count("\n") + 1 if at else None
        raise PolicyError(source, [(line, f"no TOML: {words}")]) from error
    except ValueError:
        raise PolicyError(source, [(None, "no TOML that can be read: a number of thousands of digits")]) from None
    return _Loader(tree, text, source, slugs, taken).policy()


class _Loader:
    def __init__(
        self, tree: Mapping[str, Any], text: str, source: str, slugs: Collection[str], taken: Callable[[str], bool]
    ) -> None:
        self.tree = tree
        self.taken = taken
        self.source = source
        self.slugs = frozenset(slugs) | {"policy"}
        self.places = places(text)
        self.mistakes: list[tuple[int | None, str]] = []

    def policy(self) -> Policy:
        known = [k.name for k in TOP] + list(NAMES)
        self._unknown(self.tree, (), known)
        values = self._values((), self.tree, TOP)
        if values.pop("schema", 1) != 1:
            self._say(("schema",), "schema: this gpudoctor reads 1")
        for section in SECTIONS:
            if section.name in self.tree:
                values[section.name] = self._section(section, self.tree[section.name])
        self._pairs_named(values.get("pair") or ())
        self._both(values.get("findings"))
        self._taken(values.get("environment"))
        if self.mistakes:
            raise PolicyError(self.source, self.mistakes)
        values.setdefault("name", self.source.rpartition("/")[2].removesuffix(".toml"))
        policy = Policy(**values)
        measured = policy.measured
        if (
            measured is not None
            and measured.min_host_copy_gbs is not None
            and "host_copies" not in self.tree["measured"]
        ):
            policy = replace(policy, measured=replace(measured, host_copies=True))
        return policy

    def _pairs_named(self, tables: tuple[PairRules | None, ...]) -> None:
        """Each pair by one [[pair]], which asks for something: what one of two asks would be lost."""
        named: dict[str, int] = {}
        for place, rules in enumerate(tables):
            if rules is None:
                continue  # said where it was read
            if rules.path is None and rules.nvlinks is None:
                self._say(("pair", place), f"pair[{place + 1}]: asks for nothing: it lacks path or nvlinks")
            for pair in rules.of or ():
                first = named.setdefault(pair, place)
                if first != place:
                    self._say(("pair", place, "of"), f"pair[{place + 1}].of: {pair} is in pair[{first + 1}] already")

    def _both(self, rules: FindingRules | None) -> None:
        for slug in sorted(set(rules.fail) & set(rules.warn)) if rules is not None else ():
            self._say(("findings", "warn"), f"findings.warn: {slug} is under findings.fail too")

    def _taken(self, rules: EnvironmentRules | None) -> None:
        """A variable that is not read is never found set."""
        for words in (rules.forbid or ()) if rules is not None else ():
            if not self.taken(words.partition("=")[0]):
                self._say(("environment", "forbid"), f"environment.forbid: gpudoctor does not read {words.partition('=')[0]}")

    def _section(self, section: Section, value: object) -> Any:
        if section.repeated:
            if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
                self._say((section.name,), f"{section.name}: is a list of tables, each headed [[{section.name}]]")
                return ()
            return tuple(self._table(section, (section.name, place), v) for place, v in enumerate(value))
        if not isinstance(value, dict):
            self._say((section.name,), f"{section.name}: is a table, headed [{section.name}]")
            return None
        return self._table(section, (section.name,), value)

    def _table(self, section: Section, path: Path, table: Mapping[str, Any]) -> Any:
        self._unknown(table, path, [k.name for k in section.keys])
        values = self._values(path, table, section.keys)
        lacking = [k.name for k in section.keys if k.required and k.name not in table]
        for name in lacking:
            self._say(path, f"{_dotted(path)}: lacks {name}")
        if section.record is MeasuredRules and values.get("host_copies") is False and "min_host_copy_gbs" in values:
            self._say(
                (*path, "host_copies"),
                "measured.host_copies: is false, and min_host_copy asks for a measurement of them",
            )
        wanted = {k.field or k.name for k in section.keys if k.required}
        if lacking or not wanted <= values.keys():
            return None  # said above
        return section.record(**values)

    def _values(self, path: Path, table: Mapping[str, Any], keys: tuple[Key, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key in keys:
            if key.name in table:
                try:
                    out[key.field or key.name] = self._value(key, table[key.name])
                except (_Wrong, units.WrongUnit) as error:
                    self._say((*path, key.name), f"{_dotted((*path, key.name))}: {error}")
        return out

    def _value(self, key: Key, value: object) -> Any:
        if key.quantity is not None:
            return units.read(value, key.quantity)
        if key.kind in ("slug", "slugs"):
            return self._slug(value) if key.kind == "slug" else tuple(self._slug(v) for v in _list(value))
        return _READ[key.kind](key, value)

    def _slug(self, value: object) -> str:
        word = _text(value)
        if word not in self.slugs:
            raise _Wrong(f"no check is called {word!r}{_near(word, self.slugs)}")
        return word

    def _unknown(self, table: Mapping[str, Any], path: Path, known: list[str]) -> None:
        for name in table:
            if name not in known:
                elsewhere = [f"{s.name}.{k.name}" for s in SECTIONS for k in s.keys if k.name == name]
                near = _near(name, known, path) or (
                    f"; did you mean {elsewhere[0]}?" if elsewhere else f" (known here: {', '.join(known)})"
                )
                self._say((*path, name), f"{_dotted((*path, name))}: unknown key{near}")

    def _say(self, path: Path, words: str) -> None:
        self.mistakes.append((line_of(self.places, path), words))


def _dotted(path: Path) -> str:
    """`accept[1].until`; the second of them, as a person counts."""
    words = ""
    for part in path:
        words += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if words else part
    return words


def _near(word: str, known: Collection[str], path: Path = ()) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, sorted(known), 1)
    return f"; did you mean {_dotted((*path, near[0]))}?" if near else ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"must be a text in quotes, not {_kind(value)}")
    if not value.strip():
        raise _Wrong("is empty")
    return value.strip()


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _Wrong(f'must be a list like ["…"], not {_kind(value)}')
    return value


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date")


def _count(key: Key, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Wrong(f"must be a whole number, not {_kind(value)}")
    if not key.least <= value <= 100_000:
        raise _Wrong(f"must be {key.least} or more")
    return value


def _choice(key: Key, value: object) -> str:
    word = _text(value)
    if word not in key.choices:
        raise _Wrong(f"{word!r} is none of {', '.join(key.choices)}{_near(word, key.choices)}")
    return word


def _texts(key: Key, value: object) -> tuple[str, ...]:
    words = [_text(value)] if isinstance(value, str) else [_text(v) for v in _list(value)]
    if not words:
        raise _Wrong("is empty")
    if key.choices:
        words = [_choice(key, w) for w in words]
    for word in words:
        if key.name == "of":
            _pair(word)
        if key.name == "forbid" and not _VARIABLE.fullmatch(word):
            raise _Wrong(f"{word!r} is neither a variable nor NAME=VALUE")
    return tuple(words)


def _pair(word: str) -> None:
    found = _PAIR.fullmatch(word)
    if found is None or not int(found[1]) < int(found[2]):
        raise _Wrong(f'{word!r} is no pair: write "0-1", the lower index first')


def _paths(key: Key, value: object) -> tuple[str, ...]:
    words = [_text(value)] if isinstance(value, str) else [_text(v) for v in _list(value)]
    for word in words:
        if word not in PATHS:
            hint = (
                '; NV18 is path = "NVL" with nvlinks = 18'
                if re.fullmatch(r"NV\d+", word)
                else _near(word.upper(), PATHS)
            )
            raise _Wrong(f"{word!r} is none of {', '.join(PATHS)}{hint}")
    if not words:
        raise _Wrong("is empty")
    return PATHS[: PATHS.index(words[0]) + 1] if isinstance(value, str) else tuple(words)


def _numbers(key: Key, value: object) -> tuple[int, ...]:
    if not _list(value):
        raise _Wrong("is empty")
    return tuple(_count(Key(name=key.name, kind="count", help="", least=0), v) for v in _list(value))


def _bool(key: Key, value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"must be true or false, not {_kind(value)}")
    return value


def _version(key: Key, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise _Wrong(f'must be in quotes: "{value}" (a number would make 12.10 of CUDA the same as 12.1)')
    word = _text(value)
    if not _VERSION.fullmatch(word):
        raise _Wrong(f"{word!r} is no version")
    return word


def _date(key: Key, value: object) -> str:
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    word = _text(value)
    try:
        return datetime.date.fromisoformat(word).isoformat()
    except ValueError:
        raise _Wrong(f"{word!r} is no date: 2027-03-31") from None


def _gpus(key: Key, value: object) -> int | str:
    if isinstance(value, str) and value != "all":
        raise _Wrong(f'{value!r} is neither "all" nor a number')
    return value if isinstance(value, str) else _count(key, value)


_READ: dict[str, Callable[[Key, object], Any]] = {
    "count": _count, "choice": _choice, "path": _choice, "texts": _texts, "paths": _paths, "numbers": _numbers, "bool": _bool,
    "version": _version, "date": _date, "gpus": _gpus, "text": lambda key, value: _text(value),
}  # fmt: skip
