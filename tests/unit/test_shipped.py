"""The tables that come with the program."""

import configparser
from pathlib import Path

from gpudoctor import shipped

ROOT = Path(__file__).parent.parent.parent


def test_a_table_is_read_without_its_comments() -> None:
    assert shipped.text("xid.tsv").startswith("#")
    rows = shipped.rows("xid.tsv")
    assert len(rows) > 100 and all(len(row.split("\t")) == 5 for row in rows)


def test_every_data_file_is_in_the_package() -> None:
    """What setup.cfg does not name is here in a checkout and missing in an installed program."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    package = ROOT / "gpudoctor"
    named = {p for pattern in config["options.package_data"]["gpudoctor"].split(", ") for p in package.glob(pattern)}
    there = {p for p in package.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc", ".c", ".h", ".so")}
    assert package / "py.typed" in there and package / "data/parts.tsv" in there
    assert there - named == set()
