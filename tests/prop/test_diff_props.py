"""diff over made-up reports: nothing ends it, a report is itself, and backwards is the reverse."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.diff.compare import compare
from gpudoctor.diff.model import BETTER, WORSE
from gpudoctor.diff.saved import of_report, parse

SPEEDS = st.sampled_from([None, 2.5, 8.0, 16.0])
BDFS = ["0000:41:00.0", "0000:61:00.0", "0000:81:00.0"]


def maybe(*values):
    return st.sampled_from([None, *values])


GPUS = st.lists(
    st.builds(
        lambda bdf, name, node, speed, width: {"bdf": bdf, "name": name, "numa_node": node, "pcie": {"speed_gts": speed, "max_speed_gts": 16.0, "width": width, "max_width": 16}},
        st.sampled_from(BDFS), maybe("NVIDIA A100", "NVIDIA H100"), maybe(0, 1), SPEEDS, maybe(4, 16),
    ),
    max_size=3, unique_by=lambda g: g["bdf"],
).map(lambda gpus: [{**g, "index": n} for n, g in enumerate(sorted(gpus, key=lambda g: g["bdf"]))])  # fmt: skip
PAIRS = st.lists(
    st.builds(lambda a, path, links, read: {"a": a, "b": a + 1, "path": path, "nvlinks": links, "p2p": {"read": read}}, st.integers(0, 1), maybe("NVL", "PIX", "SYS"), maybe(4, 12), maybe("OK", "CNS")),
    max_size=2, unique_by=lambda p: p["a"],
)  # fmt: skip
LINKS = st.lists(
    st.builds(lambda gpu, link, up, crc: {"gpu": gpu, "link": link, "active": up, "errors": {"crc": crc}}, st.integers(0, 2), st.integers(0, 3), maybe(True, False), maybe(0, 3, 3000)),
    max_size=8, unique_by=lambda x: (x["gpu"], x["link"]),
)  # fmt: skip
NICS = st.lists(st.builds(lambda n, state, rate: {"name": f"NIC{n}", "device": f"mlx5_{n}", "state": state, "rate_gbps": rate}, st.integers(0, 1), maybe("active", "down"), maybe(200, 400)), max_size=2, unique_by=lambda n: n["name"])
PCI = st.lists(
    st.builds(lambda n, width, on: {"bdf": f"0000:{n}0:01.1", "class": "060400", "width": width, "acs": None if on is None else {"ReqRedir": on}}, st.integers(1, 4), maybe(8, 16), maybe(True, False)),
    max_size=4, unique_by=lambda d: d["bdf"],
).map(lambda bridges: [*bridges, {"bdf": BDFS[0], "class": "030200", "parent": bridges[0]["bdf"]}] if bridges else [])  # fmt: skip
FACTS = st.fixed_dictionaries({}, optional={"gpus": GPUS, "pairs": PAIRS, "nvlinks": LINKS, "nics": NICS, "pci": PCI})
SLUGS = ("nvlink-down", "acs", "pcie-width")
RESULTS = st.tuples(*(st.tuples(st.just(s), st.sampled_from(["ok", "skipped", "error", "warning", "note"])) for s in SLUGS))


def report(facts, results):
    said = [
        {"code": s, "slug": s, "status": how if how in ("ok", "skipped") else "found", "reason": "not read" if how == "skipped" else None,
         "findings": [{"severity": how, "subject": "host", "message": "m"}] if how not in ("ok", "skipped") else []}
        for s, how in results
    ]  # fmt: skip
    return {"schema_version": 1, "tool": {"name": "gpudoctor"}, "facts": facts, "results": said}


REPORTS = st.builds(report, FACTS, RESULTS)


def every(changes):
    """All of them, causes and effects alike, without the order and the grouping."""
    return sorted((str(c.kind), str(c.before), str(c.after), c.direction) for x in changes for c in (x, *x.effects))


@given(REPORTS)
@settings(deadline=None, max_examples=25)
def test_a_report_is_itself(tree):
    got = compare(of_report(tree, "a"), of_report(json.loads(json.dumps(tree)), "a"))
    assert got.changes == () and (got.same or not tree["facts"])


@given(REPORTS, REPORTS)
@settings(deadline=None, max_examples=40)
def test_backwards_is_the_reverse(one, other):
    a, b = of_report(one, "a"), of_report(other, "b")
    there, back = compare(a, b, "time"), compare(b, a, "time")
    turned = {WORSE: BETTER, BETTER: WORSE}
    names = {"gpu-gone": "gpu-new", "gpu-new": "gpu-gone", "nic-gone": "nic-new", "nic-new": "nic-gone"}
    # A cause that only takes its direction from what it explains may explain other things on the way back.
    plain = [(k, x, y) for k, x, y, _ in every(there.changes)]
    mirrored = [(names.get(k, k), y, x) for k, x, y, _ in every(back.changes)]
    assert sorted(plain) == sorted(mirrored)
    firm = {(k, x, y): d for k, x, y, d in every(there.changes) if d in turned and k != "finding"}
    for k, x, y, d in every(back.changes):
        key = (names.get(k, k), y, x)
        assert key not in firm or d == "changed" or firm[key] == turned[d], key
    assert bool(there.missing) == bool(back.missing)
    assert not {id(c) for c in there.changes} & {id(e) for c in there.changes for e in c.effects}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([*BDFS, "gpus", "found"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["index", "bdf", "pcie", "a", "b", "path", "gpu", "link", "findings", "slug", "severity", "subject", "acs", "p2p", "host"]), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["gpus", "pairs", "nvlinks", "nics", "nic_paths", "pci", "xid"]), JSON, max_size=5), JSON, JSON, REPORTS)
@settings(deadline=None, max_examples=40)
def test_any_json_ends_nothing(facts, results, diagnoses, sound):
    tree = {"tool": {"name": "gpudoctor"}, "facts": facts, "results": results, "diagnoses": diagnoses, "source": results}
    side = parse(json.dumps(tree).encode(), "x")
    for pair in ((side, of_report(sound, "y")), (of_report(sound, "y"), side), (side, side)):
        compare(*pair)
