"""Snapshot to the same snapshot with stable stand-ins for private details: equal stays equal, facts stay facts.

Two passes: the first collects every private detail of all outputs, the second replaces it. So a serial number that one
tool labels is also gone from the log where it stands bare. Redacting twice changes nothing more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from gpudoctor.collect.capture import Capture, Probe, Snapshot
from gpudoctor.collect.private import (
    COMMON,
    ENVIRONMENT_KEYS,
    RULES,
    VERSION_KEYS,
    after_version,
    is_stand_in,
    key_of,
    open_variable,
    public_program,
    stand_in,
)
from gpudoctor.collect.probes import by_id
from gpudoctor.read.table import compiled
from gpudoctor.record import replace

HIDDEN = "redacted"
_PARTIAL_UUID = re.compile(r"(?<![\w-])(?P<head>GPU|MIG)-(?P<v>[0-9a-fA-F]{4,8}(?:-[0-9a-fA-F]{1,12}){0,4})(?![\w-])")
# No tool prints such a line as text, and every rule would walk through it: megabytes of it took minutes.
_LONG = re.compile(rb"[^\n]{1048576}[^\n]*")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PRODUCT = re.compile(r"<product_\w+>([^<]*)<|\"name\": \"(NVIDIA [^\"]*)\"")
_PROCESS_KEYS = ("name", "process_name", "cmdline", "command", "exe", "comm", "cwd", "args", "argv")
# What stands before a name that is also an ordinary word (a user called `will`), where it is surely meant as a name.
_NAME_BEFORE = r"(?<=[@~])"


def redact(snapshot: Snapshot, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> Snapshot:
    """hosts, users: names known to be private (this host's, its users'), beside those the outputs give away."""
    snapshot = replace(snapshot, captures=tuple(_telling(c) for c in snapshot.captures))
    cover = _Cover()
    for host in (snapshot.host, *hosts):
        if host:
            cover.note("host", host.split(".")[0])
    for user in users:
        cover.note("user", user)
    for capture in snapshot.captures:
        for raw in (capture.out, capture.err):
            cover.learn(_decode(raw))
            _through(raw, lambda text, version: cover.collect(text, version))
        for word in _own_words(capture.probe):
            cover.collect(word, False)
    cover.settle(snapshot)
    return replace(
        snapshot,
        host=cover.label if snapshot.host else None,
        captures=tuple(_covered(c, cover) for c in snapshot.captures),
    )


def _telling(capture: Capture) -> Capture:
    """The kernel log holds every program's trouble and the machine's boot parameters: only the lines gpudoctor reads stay.

    The others become empty lines, so that evidence still points to the right one.
    """
    if capture.probe.kind != "kernel-log":
        return capture
    keep = next(how.starts for how in compiled() if how.format.kind == "kernel-log")
    return replace(
        capture,
        out=b"\n".join(line if keep.search(_decode(line)) else b"" for line in capture.out.split(b"\n")),
    )


def _own_words(probe: Probe) -> tuple[str, ...]:
    """Of an output that somebody else's program or hand put into a snapshot: its name and command are theirs too."""
    known = by_id(probe.id)
    return () if known is not None and known.argv == probe.argv else (probe.id, probe.shown, *probe.argv)


def _covered(capture: Capture, cover: _Cover) -> Capture:
    if _own_words(capture.probe):
        id_, shown, *argv = (cover.replace(word, False) for word in _own_words(capture.probe))
        capture = replace(capture, probe=replace(capture.probe, id=id_, shown=shown, argv=tuple(argv)))
    return replace(capture, out=_through(capture.out, cover.replace), err=_through(capture.err, cover.replace))


class _Cover:
    """All private details of one snapshot and what stands for each."""

    def __init__(self) -> None:
        self.label = "host-000000"
        self._found: dict[str, dict[str, str]] = {}  # kind -> key -> first spelling, in order of sight
        self._anywhere: dict[str, set[str]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._words: set[str] = set(COMMON)  # words of the outputs' own language: never replaced as names
        self._bare: tuple[tuple[str, re.Pattern[str]], ...] = ()

    def note(self, kind: str, text: str, anywhere: bool = True) -> None:
        if kind in ("host", "user") and text.lower() in COMMON:
            return
        self._found.setdefault(kind, {}).setdefault(key_of(kind, text), text)
        if anywhere:
            self._anywhere.setdefault(kind, set()).add(text)

    def learn(self, text: str) -> None:
        """Tags, keys and product names: a user called `max` must not change `max_link_width`."""
        for name in re.findall(r"</([A-Za-z_]\w*)>|\"([a-z_][\w.]*)\":", text):
            self._words.update(w.lower() for w in _WORD.findall(name[0] or name[1]) if w.isalpha())
        for product in _PRODUCT.findall(text):
            self._words.update(w.lower() for w in _WORD.findall(product[0] or product[1]))

    def collect(self, text: str, version: bool) -> str:
        for rule in RULES:
            if rule.sign not in text:
                continue
            for found in rule.pattern.finditer(text):
                value = found["v"]
                if (
                    not rule.private(value)
                    or rule.kind == "ipv4"
                    and (version or after_version(text, found.start("v")))
                ):
                    continue
                if rule.kind != "process" or public_program(value) is None:
                    self.note(rule.kind, _short(rule.kind, value), rule.anywhere)
        return text

    def settle(self, snapshot: Snapshot) -> None:
        """Give every detail its number. A number whose stand-in already stands in the outputs is passed over."""
        self.label = self._label(snapshot)
        for kind, found in self._found.items():
            number = 1 if kind == "host" and (snapshot.host or "").lower() in COMMON else 0  # the first is this host's
            for key, text in found.items():
                if is_stand_in(kind, text):
                    continue
                number += 1
                while kind != "secret" and key_of(kind, stand_in(kind, number, text, self.label)) in found:
                    number += 1
                self._numbers[kind, key] = number
        self._bare = tuple(
            (kind, pattern) for kind in ("serial", "host", "user") if (pattern := self._pattern(kind)) is not None
        )

    def _label(self, snapshot: Snapshot) -> str:
        """The same for every snapshot of one host, unguessable where anything in it is: GPU UUIDs first."""
        if snapshot.host and is_stand_in("host", snapshot.host):
            return snapshot.host
        secret: list[str] = [snapshot.host or ""]
        secret += sorted(self._found.get("uuid", {})) or sorted(k for f in self._found.values() for k in f)
        if len(secret) < 3:
            secret += [hashlib.sha256(c.out).hexdigest() for c in snapshot.captures]
        return "host-" + hashlib.sha256("\n".join(secret).encode("utf-8", "surrogateescape")).hexdigest()[:6]

    def _pattern(self, kind: str) -> re.Pattern[str] | None:
        """Details found by their label, wherever else they stand; the longest first."""
        plain: list[str] = []
        wary: list[str] = []
        for text in sorted(self._anywhere.get(kind, ()), key=lambda t: (-len(t), t)):
            if is_stand_in(kind, text):
                continue
            telling = len(text) >= 6 or len(text) >= 3 and any(not c.isalpha() for c in text) and not text.isdigit()
            if text.lower() in self._words or not telling:
                wary.append(re.escape(text))
            else:
                plain.append(re.escape(text))
        if kind == "serial":
            wary = []
        tail = r"(?:\.[A-Za-z][\w-]*)*" if kind == "host" else ""
        ways = []
        if plain:
            ways.append(f"(?<![A-Za-z0-9])(?:{'|'.join(plain)}){tail}")
        if wary:
            ways.append(f"{_NAME_BEFORE}(?:{'|'.join(wary)}){tail}")
        return re.compile(f"(?P<v>(?:{'|'.join(ways)}))(?![A-Za-z0-9])") if ways else None

    def replace(self, text: str, version: bool) -> str:
        for rule in RULES:
            if rule.sign not in text:
                continue

            def put(found: re.Match[str], kind: str = rule.kind, private: Callable[[str], bool] = rule.private) -> str:
                value = found["v"]
                if not private(value) or kind == "ipv4" and (version or after_version(found.string, found.start("v"))):
                    return found[0]
                return _with(found, self._for(kind, value))

            text = rule.pattern.sub(put, text)
        text = _PARTIAL_UUID.sub(self._whole_uuid, text)
        for kind, pattern in self._bare:
            text = pattern.sub(lambda found, kind=kind: _with(found, self._for(kind, found["v"])), text)  # type: ignore[misc]
        return text

    def _whole_uuid(self, found: re.Match[str]) -> str:
        """CUDA_VISIBLE_DEVICES takes the first digits of a UUID: the whole stand-in means the same GPU."""
        for key in self._found.get("uuid", {}):
            if len(found["v"]) < 36 and key.startswith(found["v"].lower()):
                return f"{found['head']}-{self._for('uuid', key)}"
        return found[0]

    def _for(self, kind: str, value: str) -> str:
        if kind == "process" and (program := public_program(value)):
            return program
        short = _short(kind, value)
        number = self._numbers.get((kind, key_of(kind, short)))
        return value if number is None else stand_in(kind, number, value, self.label)


def _short(kind: str, value: str) -> str:
    """Hosts are known by their first name: with and without the domain is the same host."""
    return value.split(".")[0] if kind == "host" else value


def _with(found: re.Match[str], new: str) -> str:
    whole, start = found[0], found.start()
    return whole[: found.start("v") - start] + new + whole[found.end("v") - start :]


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _through(raw: bytes, change: Callable[[str, bool], str]) -> bytes:
    """Apply a change to an output: to the strings in it where it is JSON, else to the whole text."""
    if raw.lstrip()[:1] == b"{":
        try:
            tree = json.loads(raw)
            new = _walk(tree, change, "", False)
        except (ValueError, RecursionError):
            pass  # cut or not JSON: as text
        else:
            return raw if new == tree else json.dumps(new).encode() + (b"\n" if raw.endswith(b"\n") else b"")
    short = _LONG.sub(lambda line: b"[a line of %d bytes was left out]" % len(line[0]), raw)
    return change(_decode(short), False).encode("utf-8", "surrogateescape")


def _walk(value: Any, change: Callable[[str, bool], str], key: str, version: bool) -> Any:
    """`"key": "value"` is put before the change as one text, so that labels and values meet as they do in plain text."""
    if isinstance(value, str):
        head = f'"{key}": "'
        changed = change(head + value, version)
        return changed[len(head) :] if changed.startswith(head) else change(value, version)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        text = str(value)
        changed = _walk(text, change, key, version) if len(text) >= 5 and re.search("serial|guid", key, re.I) else text
        return value if changed == text else changed
    if isinstance(value, list):
        if key.lower() in ENVIRONMENT_KEYS:  # as nccl-tests writes it: "NAME=value"
            value = [_assigned(v) for v in value]
        return [_walk(v, change, key, version) for v in value]
    if not isinstance(value, dict):
        return value
    if key.lower() in ENVIRONMENT_KEYS:
        return {n: _walk(v, change, n, version) if open_variable(n) else _hidden(v) for n, v in value.items()}
    if isinstance(value.get("name"), str) and set(value) >= {"name", "value"} and not open_variable(value["name"]):
        value = {**value, "value": _hidden(value["value"])}
    out: dict[str, Any] = {}
    for name, inner in value.items():
        if "pid" in value and name in _PROCESS_KEYS:
            inner = _program(inner, change)
        new = name if re.fullmatch("[a-z_]+", name) else change(name, version)
        out[new] = _walk(inner, change, name, version or bool(VERSION_KEYS.search(name)))
    return out


def _assigned(value: Any) -> Any:
    name, sign, rest = value.partition("=") if isinstance(value, str) else ("", "", "")
    return f"{name}={_hidden(rest)}" if sign and not open_variable(name) else value


def _hidden(value: Any) -> Any:
    return HIDDEN if value else value


def _program(value: Any, change: Callable[[str, bool], str]) -> Any:
    """A process's name or command line, put before the change as nvidia-smi writes it."""
    if isinstance(value, list):
        value = " ".join(str(v) for v in value)
    if not isinstance(value, str):
        return value
    head, tail = "<process_name>", "</process_name>"
    return change(head + re.sub(r"[<>\s]+", " ", value) + tail, False)[len(head) : -len(tail)]
