"""`gpudoctor explain` with several names; one that is unknown is wrong usage."""

import json

import pytest
from click.testing import CliRunner, Result

from gpudoctor.cli.explain import command


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
