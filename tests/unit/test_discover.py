import sys

from gpudoctor import discover


def test_entry_points_are_what_the_library_finds():
    assert discover.find() == discover._by_library()


def test_metadata_of_any_shape(tmp_path, monkeypatch):
    for name, text in {
        "a-1.0.dist-info": "[console_scripts]\nx = a:b\n\n[gpudoctor.checkers]\none = pkg.mod:Class\n# no = pkg:C\ntwo=pkg:C [extra]\n[other]\nthree = pkg:C\n",
        "b-1.0.egg-info": "[gpudoctor.checkers]\nfour = gpudoctor.checkers.pair_path:PairPath\n",
        "c-1.0.dist-info": "\ufffd[",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "entry_points.txt").write_text(text)
    (tmp_path / "d-1.0.dist-info").mkdir()
    (tmp_path / "e-1.0.dist-info").mkdir()
    (tmp_path / "e-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe\x00[")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "absent"), str(tmp_path)])
    assert [(e.name, e.value) for e in discover.find()] == [
        ("four", "gpudoctor.checkers.pair_path:PairPath"),  # our own first
        ("one", "pkg.mod:Class"),
        ("two", "pkg:C"),
    ]


def test_an_archive_on_the_path_is_left_to_the_library(tmp_path, monkeypatch):
    archive = tmp_path / "x.zip"
    archive.write_bytes(b"PK\x05\x06" + b"\0" * 18)
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    assert discover.find() == discover._by_library()


def test_a_package_that_is_there_twice_counts_once(tmp_path, monkeypatch):
    """As for an import: an older gpudoctor further down the path must not bring checks whose modules are gone."""
    for folder, version, slug in (("first", "2.0", "new"), ("second", "1.0", "gone")):
        info = tmp_path / folder / f"a-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "entry_points.txt").write_text(f"[gpudoctor.checkers]\n{slug} = pkg:{slug}\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: a\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert [e.name for e in discover.find()] == ["new"]
    assert discover.find() == discover._by_library()
