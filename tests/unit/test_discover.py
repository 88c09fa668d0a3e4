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
