"""The bundled made-up hosts are what their generator makes, and say that they are made up."""

import json

import pytest

from tests.golden import HOSTS
from tests.hosts.heroes import HEROES
from tests.hosts.make import files


@pytest.mark.parametrize("build", HEROES)
def test_current(build):
    hero = build()
    for name, content in files(hero).items():
        assert (HOSTS / hero.spec.name / name).read_text() == content, f"{hero.spec.name}/{name}: python -m tests.hosts.make"


def test_every_bundled_host_names_its_origin():
    made = {build().spec.name for build in HEROES}
    for folder in HOSTS.iterdir():
        origin = json.loads((folder / "manifest.json").read_text())["origin"]
        assert origin.startswith("synthetic:" if folder.name in made else "captured on ")
