"""`gpudoctor explain` with several names; one that is unknown is wrong usage."""

import json

import pytest
from click.testing import CliRunner, Result

from gpudoctor.cli.explain import command
from gpudoctor.sayings import of_line, sayings


def explain(*words: str) -> Result:
    return CliRunner().invoke(command, [*words], prog_name="gpudoctor explain")


def test_several_causes_one_after_the_other():
    done = explain("acs", "GD614", "Xid 79")
    assert done.exit_code == 0 and not done.stderr
    heads = [done.stdout.index(word) for word in ("GD218  acs", "GD614  collective-timeout", "Xid 79:", "GD104  xid")]
    assert heads == sorted(heads)


@pytest.mark.parametrize("format_", ["text", "json"])
def test_one_unknown_name_among_known_ones_is_wrong_usage(format_):
    done = explain("acs", "pcie-widht", "nonsense", "--format", format_)
    assert done.exit_code == 2 and not done.stdout
    assert "did you mean pcie-width" in done.stderr and "'nonsense'" in done.stderr and "'acs'" not in done.stderr


@pytest.mark.parametrize("words", [("nonsense",), ("one", "two"), ()])
def test_nothing_known_prints_nothing(words):
    done = explain(*words)
    assert done.exit_code == 2 and not done.stdout and done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Duplicate", "GPU", "detected"), "NCCL message: duplicate-gpu"),
        (("xid", "79"), "Xid 79:"),
        (("SXid", "12028", "acs"), "SXid 12028:"),
        (("acs", "acs"), "GD218  acs"),
    ],
)
def test_words_without_quotes(words, said):
    done = explain(*words)
    assert done.exit_code == 0 and done.stdout.startswith(said) and done.stdout.count(said) == 1


def test_json_of_one_and_of_several():
    one = json.loads(explain("acs", "--format", "json").stdout)
    several = json.loads(explain("acs", "duplicate-gpu", "--format", "json").stdout)
    assert one["slug"] == one["explain"]["slug"] == "acs"
    assert [e["slug"] for e in several["explain"]] == ["acs", "duplicate-gpu"] and "slug" not in several


EVERY = [s for s in sayings() if s.pattern is not None]


@pytest.mark.parametrize("saying", EVERY, ids=lambda s: s.id)
def test_every_line_is_known_by_its_own_example(saying):
    assert of_line(saying.example).id == saying.id
    done = explain(saying.example, "--format", "json")
    said = json.loads(done.stdout)["explain"]
    assert done.exit_code == 0 and (said.get("saying") == saying.id or said.get("slug"))  # a number of Xid's, or a message of NCCL's


def test_every_cause_of_the_table_is_in_the_catalogue():
    from gpudoctor.discover import load

    slugs = {c.slug for c in load().causes}
    assert {c for s in sayings() for c in s.causes} <= slugs
    words = [w for s in sayings() for w in s.words]
    assert len(words) == len(set(words)) and not slugs & set(words)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.", "Xid 79: the GPU has fallen off the bus"),
        ("[Sun Nov 29 21:18:43 2026] NVRM: Xid (0000:01:00): 31, Ch 00000010, intr 10000000", "Xid 31:"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 28 LTSSM Fault Up", "SXid 20034:"),
        ("vm:1:2 [0] misc/socket.cc:47 NCCL WARN socketProgressOpt: Call to recv from 192.0.2.2<41000> failed : Connection reset by peer", "NCCL message: peer-closed"),
        ("[rank3]:[W1129 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=76, addr=[node3]:41652): Broken pipe", "Means     An echo"),
        ("timeout", "Means     A job that stands still"),
        ("Peer to Peer", "Means     Whether GPUs reach"),
        ("NCCL_P2P_DISABLE=1", "Means     NCCL_P2P_DISABLE says"),
        ("NCCL_ALGO", "Means     NCCL_ALGO is a setting"),
    ],
)
def test_a_pasted_line_or_a_word(line, said):
    done = explain(line)
    assert done.exit_code == 0 and done.stdout.startswith(said), done.stderr
    assert explain(*line.split()).stdout == done.stdout  # without quotes


@pytest.mark.parametrize("line", ["NCCL_NONSENSE", "step 12 done, loss 0.3", "time", "the xid is not known", "hang on a minute", "loading shard 79, all good"])
def test_what_is_no_line_of_anybodys(line):
    done = explain(line)
    assert done.exit_code == 2 and not done.stdout and done.stderr


def test_several_pasted_lines_are_explained_each_once():
    paste = f"{EVERY[0].example}\nstep 12\n{EVERY[0].example}\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1\n"
    for done in (explain(paste), CliRunner().invoke(command, ["-"], input=paste, prog_name="gpudoctor explain")):
        assert done.exit_code == 0 and done.stdout.count("PyTorch's watchdog: the rank that prints this waited") == 1 and "Xid 79:" in done.stdout
