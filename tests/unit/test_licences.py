"""docs/licences.md against the packages themselves: all that setup.cfg asks for, under the licences that they state."""

import configparser
import re
from importlib import metadata

import pytest

from tests.support import ROOT

ROWS = {
    cells[0]: cells[1:]
    for line in (ROOT / "docs" / "licences.md").read_text().splitlines()
    if line.startswith("| ") and (cells := [c.strip() for c in line.strip("|").split("|")])[0] != "package"
}
# What older metadata writes instead of an SPDX name.
OLD = {"BSD License": "BSD-3-Clause", "MIT License": "MIT", "BSD": "BSD-3-Clause"}


def asked_for(*extras):
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"], *(config["options.extras_require"][e] for e in extras)]
    return {re.match(r"[\w-]+", line)[0].lower() for text in texts for line in text.splitlines() if line.strip()}


def pins(file):
    text = (ROOT / "requirements" / file).read_text()
    return {m[1].lower(): m[2] for m in re.finditer(r"(?m)^([\w-]+)==([\w.]+)", text)}


def test_everything_that_is_installed_with_us_is_listed():
    assert asked_for("html", "torch") <= set(ROWS)


def test_the_one_file_program_holds_all_that_is_asked_for_and_each_has_its_hash():
    assert set(pins("pyz.txt")) == asked_for()
    lines = [x for x in (ROOT / "requirements" / "pyz.txt").read_text().splitlines() if x and not x.startswith("#")]
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in lines)


def test_versions_are_the_pinned_ones():
    ci = pins("ci.txt")
    for name, version in pins("pyz.txt").items():
        assert ROWS[name][0] == version and ci[name] == version, name
    assert ROWS["jinja2"][0] == ci["jinja2"] and ROWS["markupsafe"][0] == ci["markupsafe"]


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if not row[0].startswith("any")])
def test_the_licence_is_what_the_package_says(name):
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    classifiers = [c.rpartition(":: ")[2] for c in said.get_all("Classifier") or [] if c.startswith("License ::")]
    words = said.get("License-Expression") or (classifiers[0] if classifiers else said.get("License"))
    assert OLD.get(words, words) == ROWS[name][1]


def test_no_address_of_an_index_is_written_down():
    for path in (ROOT / "requirements").iterdir():
        assert not re.search(r"://|--(?:extra-)?index-url|--find-links|--trusted-host", path.read_text()), path.name
