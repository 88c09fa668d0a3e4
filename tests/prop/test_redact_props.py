"""Redaction over made-up private details: none survives, none is confused with another, every fact stays."""

import json
import string

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.collect.capture import Capture, Snapshot
from gpudoctor.collect.probes import by_id
from gpudoctor.collect.redact import redact
from gpudoctor.ingest import take
from gpudoctor.report.facts import facts_json
from tests.fakes import HOST

HEX = "0123456789abcdef"


def hexed(*groups):
    """Groups of random hexadecimal digits, with a letter in the first so that it is no plain number."""
    return st.tuples(*(st.text(HEX, min_size=n, max_size=n) for n in groups))


UUID = hexed(8, 4, 4, 4, 12).map("-".join).filter(lambda u: u.strip("0-") and not u.startswith("00000000-0000-0000-0000"))
MAC = hexed(2, 2, 2, 2, 2, 2).map(":".join).filter(lambda m: len(set(m)) > 3 and not m.startswith("02:00:00:00"))
IPV4 = st.tuples(st.integers(1, 223), *[st.integers(0, 255)] * 3).map(lambda o: ".".join(map(str, o))).filter(
    lambda a: not a.startswith(("127.", "192.0.2.", "198.51.100.", "203.0.113.", "198.18.", "198.19."))
)
SERIAL = st.integers(10**12, 10**13 - 1).map(str)
# A digit makes them names and no words; ours are long enough to stand for nothing else in an output.
NAME = st.text(string.ascii_lowercase, min_size=5, max_size=9).map(lambda n: f"q{n}7")
PRIVATE = {
    "uuid": (UUID, "<uuid>GPU-{}</uuid>"),
    "mac": (MAC, "eth0: link/ether {} brd ff:ff:ff:ff:ff:ff"),
    "ipv4": (IPV4, "listening on {}:29500"),
    "serial": (SERIAL, "Serial Number : {}"),
    "host": (NAME, "Nov 29 20:08:54 {} kernel: up"),
    "user": (NAME, "open /home/{}/train"),
}
DETAILS = st.lists(
    st.sampled_from(sorted(PRIVATE)).flatmap(lambda k: st.tuples(st.just(k), PRIVATE[k][0])), min_size=1, max_size=12, unique_by=lambda d: d[1]
)


def capture(probe_id, text):
    return Capture(probe=by_id(probe_id), status="ok", rc=0, out=text.encode())


@given(DETAILS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_no_detail_survives_and_none_is_confused(details, random):
    lines = [PRIVATE[kind][1].format(value) for kind, value in details]
    again = [PRIVATE[kind][1].format(value) for kind, value in random.sample(details, len(details))]
    tree = {"lines": lines, "by_name": {value: 1 for _, value in details}}
    before = Snapshot(
        captures=(capture("fabricmanager", "\n".join(lines) + "\n"), capture("lspci", "\n".join(again)), capture("system", json.dumps(tree))),
        host="qownhost7",
    )
    after = redact(before)
    whole = b"\n".join(c.out for c in after.captures).decode()
    for _, value in details:
        assert value not in whole
    shown = dict(zip((v for _, v in details), after.captures[0].out.decode().split("\n"), strict=False))
    assert len(set(shown.values())) == len(details)
    told = after.captures[1].out.decode().split("\n")
    for line, place in zip(again, told, strict=True):
        assert place == shown[next(v for k, v in details if PRIVATE[k][1].format(v) == line)]
    assert json.loads(after.captures[2].out)["lines"] == list(shown.values())
    assert redact(after) == after


@given(st.lists(UUID, min_size=2, max_size=2, unique=True), st.lists(SERIAL, min_size=2, max_size=2, unique=True), NAME, IPV4)
@settings(deadline=None, max_examples=25)
def test_facts_other_than_the_private_ones_stay(uuids, serials, host, address):
    captures = []
    for entry in json.loads((HOST / "manifest.json").read_text())["probes"]:
        text = (HOST / entry["file"]).read_text()
        for number, (uuid, serial) in enumerate(zip(uuids, serials, strict=True), 1):
            text = text.replace(f"00000000-0000-0000-0000-00000000000{number}", uuid).replace(f"165000000000{number}", serial)
        captures.append(capture(entry["id"], text.replace("node07", host) + (f"# {address}\n" if entry["id"] == "dmesg" else "")))
    before = Snapshot(captures=tuple(captures), host=host)
    after = redact(before, hosts=[host])
    for value in (*uuids, *serials, host, address):
        assert all(value.encode() not in c.out for c in after.captures)
    facts = facts_json(take([before]).stores)
    assert facts["gpus"] and facts["pairs"] and facts["nvlinks"]
    assert facts_json(take([after]).stores) == facts


@given(st.binary(max_size=400), st.sampled_from(["", '{"a": "', "<serial>", "Serial: "]))
@settings(deadline=None)
def test_any_bytes_end_nothing_and_settle_at_once(raw, head):
    snapshot = Snapshot(captures=(Capture(probe=by_id("dmesg"), status="ok", out=head.encode() + raw),), host="qownhost7")
    once = redact(snapshot)
    assert redact(once) == once


@given(st.lists(st.sampled_from("0:.- \n@/=<>[]aAbfF9 serialtokenGPU-home"), max_size=200).map("".join))
@settings(deadline=None)
def test_text_near_the_patterns_settles_at_once(text):
    once = redact(Snapshot(captures=(capture("dmesg", text),)))
    assert redact(once) == once
