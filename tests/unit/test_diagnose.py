import itertools

from gpudoctor.correlate.causes import Explains
from gpudoctor.correlate.diagnose import diagnose
from gpudoctor.model import ERROR, NOTE, WARNING, Evidence, Finding

SEEN = (Evidence("test", "line 1", "x"),)
TABLE = (
    Explains("root", ("effect", "far"), "gpu"),
    Explains("effect", ("far",), "same"),
    Explains("a", ("b",), "host"),
    Explains("b", ("a",), "host"),
)
GPUS = {
    (None, "gpu:1"): frozenset({"gpu:1"}),
    (None, "pair:0-1"): frozenset({"gpu:0", "gpu:1"}),
    (None, "pair:2-3"): frozenset({"gpu:2", "gpu:3"}),
}


def say(slug: str, severity: str = ERROR, subject: str = "host") -> Finding:
    return Finding(slug, severity, subject, f"{slug} at {subject}", SEEN)


def test_a_root_takes_its_effects_on_the_same_gpu_only():
    got = diagnose([say("root", ERROR, "gpu:1"), say("effect", NOTE, "pair:0-1"), say("effect", NOTE, "pair:2-3")], GPUS, TABLE)
    assert [(d.finding.slug, d.finding.subject, len(d.explains)) for d in got] == [("root", "gpu:1", 1), ("effect", "pair:2-3", 0)]


def test_order_of_findings_does_not_matter_and_none_is_lost():
    said = [say("root", ERROR, "gpu:1"), say("effect", WARNING, "pair:0-1"), say("far", NOTE, "pair:0-1"), say("other", WARNING)]
    answers = {
        tuple((d.finding.slug, tuple(e.slug for e in d.explains)) for d in diagnose(order, GPUS, TABLE))
        for order in itertools.permutations(said)
    }
    assert answers == {(("root", ("effect", "far")), ("other", ()))}


def test_a_lesser_cause_does_not_hide_a_worse_effect():
    got = diagnose([say("root", NOTE, "gpu:1"), say("effect", ERROR, "pair:0-1")], GPUS, TABLE)
    assert [d.finding.slug for d in got] == ["effect", "root"]


def test_two_that_explain_each_other_leave_one_root():
    got = diagnose([say("a"), say("b")], GPUS, TABLE)
    assert [(d.finding.slug, [e.slug for e in d.explains]) for d in got] == [("a", ["b"])] or [
        (d.finding.slug, [e.slug for e in d.explains]) for d in got
    ] == [("b", ["a"])]


def test_notes_of_one_slug_are_folded_and_errors_are_not():
    notes = diagnose([say("n", NOTE, f"pair:0-{i}") for i in range(1, 12)])
    assert len(notes) == 1 and len(notes[0].alike) == 10
    assert [f.subject for f in (notes[0].finding, *notes[0].alike)][:3] == ["pair:0-1", "pair:0-2", "pair:0-3"]
    assert len(diagnose([say("e", ERROR, f"gpu:{i}") for i in range(4)])) == 4


def test_hosts_are_not_joined():
    from gpudoctor.record import replace

    cause, effect = say("a"), say("b")
    got = diagnose([replace(cause, host="one"), replace(effect, host="two")], {}, TABLE)
    assert len(got) == 2


def test_what_ended_a_run_comes_before_what_only_slows_it():
    from gpudoctor.record import replace

    slow = say("p2p-disabled-env")
    ended = replace(say("peer-died", subject="rank:1"), confidence="likely")
    assert [d.finding.slug for d in diagnose([slow, ended])] == ["peer-died", "p2p-disabled-env"]
    # A warning of such a slug ended nothing.
    assert [d.finding.slug for d in diagnose([slow, say("shm", WARNING)])] == ["p2p-disabled-env", "shm"]


def test_pci_addresses_go_by_their_hexadecimal_value():
    said = [say("e", ERROR, f"gpu:0000:{bus}:00.0") for bus in ("2a", "0f", "18", "07", "9b")]
    assert [d.finding.subject[9:11] for d in diagnose(said)] == ["07", "0f", "18", "2a", "9b"]


def test_what_the_service_says_of_the_fabric_explains_what_a_program_was_told():
    told = Finding("fabric", ERROR, "host", "A process failed: CUDA error 802: the fabric is not set up.", SEEN)
    why = Finding("fabric", ERROR, "host", "Fabric Manager refuses to start with this driver.", SEEN)
    for order in ([told, why], [why, told]):
        (root,) = diagnose(order)
        assert (root.finding, root.explains) == (why, (told,))
    # Two things that the host says of it, and two programs that were told, are each for themselves.
    other = Finding("fabric", ERROR, "gpu:1", "GPU1: registration with the fabric is in progress.", SEEN)
    assert len(diagnose([why, other])) == 2
    assert len(diagnose([told, Finding("fabric", ERROR, "host", "Rank 1 failed: CUDA error 802.", SEEN)])) == 2
