"""NCCL's RAS service: its text, its JSON, and a talk with it (answers synthetic, in the words of NCCL 2.28 and 2.32)."""

from __future__ import annotations

import importlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from gpudoctor.checkers.ras import RasFindings
from gpudoctor.collect import ras
from gpudoctor.facts.hang import Ras
from gpudoctor.model import ERROR, WARNING, CannotTell, Finding
from gpudoctor.read.section import Unparsable, parser_module
from gpudoctor.read.whole import whole
from tests.support import FIXTURES, check, findings, recognise, report

HEAD = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {errors}

Errors
======

"""
OK = HEAD.format(errors="    OK") + "Warnings\n========\n\n"
BEHIND = HEAD.format(errors="MISMATCH") + """Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650 on node 10.0.0.2

"""
SEVERAL = BEHIND.replace("  7 ranks", "  6 ranks").replace(
    "  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650 on node 10.0.0.2",
    "  2 ranks have not launched any operations\n  Rank 3 -- GPU 3 managed by process 1603 on node 10.0.0.1\n"
    "  Rank 7 -- GPU 3 managed by process 1650 on node 10.0.0.2",
)
DEAD = HEAD.format(errors="INCOMPLETE") + """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 1650 on node 10.0.0.2 managing GPU 3

#0-0 (78db921d1c117b4a) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 1650 on node 10.0.0.2

Warnings
========

"""
SILENT = DEAD.replace("DEAD\n  1 job process is considered dead (unreachable via the RAS network)", "INCOMPLETE\n  Missing communicator data from 1 job process")


def parsed(text: str | bytes) -> Ras | None:
    parts = []
    for section in recognise(text):
        if section.kind in ("ras", "ras-json"):
            try:
                parts += list(importlib.import_module(parser_module(section.kind)).parse(section))
            except Unparsable:
                pass
    facts = [p for p in parts if isinstance(p, Ras)]
    return Ras.merge(facts, lambda _: None) if facts else None


def said(text: str) -> dict[tuple[str, str], Finding]:
    found = parsed(text)
    assert found is not None
    return findings(RasFindings(), found)


def answer(counts: dict[int, int], missing: tuple[dict[str, Any], ...] = (), errors: dict[int, int] | None = None) -> dict[str, Any]:
    return {
        "nccl_version": "2.32.3",
        "timestamp": "2026-11-29 19:05:40",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xe0b2ce5a05077398",
                "size": len(counts) + len(missing),
                "ranks_count": len(counts),
                "missing_ranks_count": len(missing),
                "ranks": [
                    {
                        "rank": rank, "host": "10.0.0.1", "pid": 940 + rank, "cuda_dev": rank, "nvml_dev": rank,
                        "status": {"init_state": 0, "async_error": (errors or {}).get(rank, 0), "abort_flag": False},
                        "collective_counts": {"Broadcast": 0, "AllReduce": count},
                    }
                    for rank, count in counts.items()
                ],
                "missing_ranks": list(missing),
            }
        ],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }  # fmt: skip


def test_healthy_text_and_json_say_nothing() -> None:
    assert said(OK) == {}
    assert said(json.dumps(answer({0: 5, 1: 5}), indent=1)) == {}
    found = parsed(OK)
    assert found is not None and [(g.size, g.status, g.errors) for g in found.answers[0].groups] == [(8, "RUNNING", "OK")]


def test_one_answer_with_a_rank_behind_is_a_warning() -> None:
    found = said(BEHIND)
    assert set(found) == {("collective-timeout", "rank:7")}
    finding = found["collective-timeout", "rank:7"]
    assert finding.severity == WARNING and "60" in finding.message and "process 1650" in finding.message
    assert any("1650" in (s.command or "") for s in finding.remediation)


def test_the_size_of_a_communicator_is_its_groups() -> None:
    told = parsed(BEHIND)
    assert told is not None and [(c.id, c.size) for c in told.answers[0].comms] == [("78db921d1c117b4a", 8)]
    told = parsed(BEHIND.replace("#0-0 (", "#1-0 ("))
    assert told is not None and told.answers[0].comms[0].size is None
    (finding,) = said(BEHIND).values()
    assert "7 of 8 ranks of communicator 78db921d1c117b4a have" in finding.message and "GPU 3" in finding.message


def test_two_equal_answers_are_a_hang() -> None:
    assert said(BEHIND + BEHIND)["collective-timeout", "rank:7"].severity == ERROR


def test_counts_that_grow_are_no_hang() -> None:
    assert said(BEHIND + BEHIND.replace("operation 60", "operation 63").replace("operation 64", "operation 67")) == {}
    assert said(BEHIND + OK) == {}


def test_several_ranks_behind() -> None:
    found = said(SEVERAL)
    assert set(found) == {("collective-timeout", "rank:3"), ("collective-timeout", "rank:7")}
    assert "only 0" in found["collective-timeout", "rank:3"].message


def test_most_ranks_behind_names_nobody() -> None:
    text = BEHIND.replace("7 ranks have launched up to operation 64", "7 ranks have launched up to operation 60").replace(
        "Rank 7 has launched up to operation 60", "Rank 7 has launched up to operation 64"
    )
    assert set(said(text)) == {("collective-timeout", "host")}


def test_a_dead_process() -> None:
    finding = said(DEAD)["peer-died", "rank:7"]
    assert finding.severity == ERROR and finding.confidence == "certain" and "dead" in finding.message
    finding = said(SILENT)["peer-died", "rank:7"]
    assert finding.confidence == "likely" and "does not answer" in finding.message
    # Without the communicator's lines nobody knows its rank.
    head, _, _ = DEAD.partition("#0-0")
    assert set(said(head)) == {("peer-died", "host")}


def test_json_of_a_dead_rank_and_of_errors() -> None:
    gone = {"rank": 2, "host": "10.0.0.2", "pid": 77, "cuda_dev": 0, "status": {"unresponsive": True, "considered_dead": True}}
    assert set(said(json.dumps(answer({0: 5, 1: 5}, (gone,))))) == {("peer-died", "rank:2")}
    assert set(said(json.dumps(answer({0: 5, 1: 5}, errors={1: 1})))) == {("peer-died", "rank:1")}
    # Those that report a remote error lost somebody else.
    assert set(said(json.dumps(answer({0: 5, 1: 5, 2: 5}, errors={0: 6, 1: 6})))) == {("peer-died", "host")}


def test_a_marked_row_without_its_details_cannot_be_told() -> None:
    found = parsed(HEAD.format(errors="MISMATCH"))
    assert found is not None
    assert [type(x) for x in check(RasFindings(), found)] == [CannotTell]


@pytest.mark.parametrize("text", [BEHIND, SEVERAL, DEAD, json.dumps(answer({0: 5, 1: 4}), indent=1)])
def test_cut_at_every_byte(text: str) -> None:
    every = said(text)
    for end in range(len(text)):
        found = parsed(text[:end])
        for key, finding in (findings(RasFindings(), found) if found is not None else {}).items():
            if key[1] != "host":
                assert key in every and finding.severity == every[key].severity, (end, key)


def test_json_alone_is_one_document() -> None:
    section, _ = whole("x", [json.dumps(answer({0: 5, 1: 5})).encode()])
    assert section is not None and getattr(section, "kind", None) == "ras-json"


@contextmanager
def service(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that listens, and says what `talk` says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    try:
                        talk(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # closing alone wakes nobody who waits for a connection
        thread.join(5)


def ras_of(answers: Iterator[str], speaks_json: bool) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        for line in connection.makefile("r"):
            words = line.strip()
            if words.startswith("CLIENT PROTOCOL"):
                connection.sendall(b"SERVER PROTOCOL 2\n")
            elif words.startswith("TIMEOUT") or words == "SET FORMAT json" and speaks_json:
                connection.sendall(b"OK\n")
            elif words == "VERBOSE STATUS":
                connection.sendall(next(answers).encode())
                return
            else:
                connection.sendall(b"ERROR: Unknown command " + words.encode() + b"\n")

    return talk


@pytest.mark.parametrize("json_form", [True, False])
def test_check_asks_twice_where_ranks_differ(json_form: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    text = json.dumps(answer({0: 5, 1: 4, 2: 5})) if json_form else BEHIND
    (tmp_path / "empty.txt").write_text("nothing\n")
    with service(ras_of(iter([text, text]), json_form)) as where:
        status, said = report("check", "--ras", where, "--from", str(tmp_path / "empty.txt"))
    assert status == 1
    assert [(d["cause"], d["subject"], d["severity"]) for d in said["diagnoses"]] == [
        ("collective-timeout", "rank:1" if json_form else "rank:7", "error")
    ]
    assert where in said["diagnoses"][0]["evidence"][0]["source"]


def test_a_healthy_job_is_asked_once(tmp_path: Any) -> None:
    (tmp_path / "empty.txt").write_text("nothing\n")
    with service(ras_of(iter([json.dumps(answer({0: 5, 1: 5}))]), True)) as where:
        status, said = report("check", "--ras", where, "--from", str(tmp_path / "empty.txt"))
    assert status == 0 and said["diagnoses"] == []
    assert said["facts"]["nccl"][0]["version"] == "2.32.3"


def test_refused_is_missing_and_never_healthy(tmp_path: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
    (tmp_path / "a.txt").write_text(OK)
    status, said = report("check", "--ras", where, "--from", str(tmp_path / "a.txt"))
    assert status == 3 and said["verdict"] == "unknown"
    assert any(where in m["fact"] and "nothing listens there" in m["reason"] for m in said["missing"])


@pytest.mark.parametrize(
    "talk, words",
    [
        (lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\n\n"), "not NCCL's RAS service"),
        (lambda c: c.sendall(b"x" * 100_000), "not NCCL's RAS service"),
        (lambda c: c.close(), "closed the connection"),
        (lambda c: threading.Event().wait(2), "no whole answer"),
    ],
)  # fmt: skip
def test_strangers_are_not_believed(talk: Callable[[socket.socket], None], words: str) -> None:
    with service(talk) as where, pytest.raises(ras.RasSilent, match=words):
        ras.ask(ras.address(where), 1.0)


def test_a_flood_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "MAX_ANSWER", 1 << 20)
    with service(ras_of(iter(["x" * (3 << 20)]), True)) as where, pytest.raises(ras.RasSilent, match="1 MiB"):
        ras.ask(ras.address(where), 5.0)


@pytest.mark.parametrize(
    "text, host, port",
    [("localhost:28028", "localhost", 28028), ("node7", "node7", 28028), ("[::1]:5", "::1", 5), ("::1", "::1", 28028), (":99", "localhost", 99)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert ras.address(text) == (host, port)


@pytest.mark.parametrize("text", ["a b:1", "host:0", "host:70000", "host:x", "a;b:1"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError):
        ras.address(text)


def test_a_cut_answer_is_no_answer() -> None:
    """Asked for by name, and nothing could be read: never in order."""
    with service(ras_of(iter([json.dumps(answer({0: 5, 1: 5}))[:200]]), True)) as where:
        status, said = report("check", "--ras", where, "--timeout", "10", "--from", str(FIXTURES / "hosts/rtx4090x2-healthy"))
    assert status == 3 and any("RAS service at" in m["fact"] and "cut" in m["reason"] for m in said["missing"])


OTHER = BEHIND.replace(
    "  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650 on node 10.0.0.2",
    "  Rank 7 has launched up to operation 63 -- GPU 3 managed by process 1650 on node 10.0.0.2\n"
    "  Communicator ranks have different Broadcast operation counts\n  7 ranks have not launched any operations\n"
    "  Rank 7 has launched up to operation 1 -- GPU 3 managed by process 1650 on node 10.0.0.2",
)


def counted(counts: dict[int, tuple[int, int]]) -> str:
    """JSON of ranks with their numbers of AllReduce and Broadcast."""
    made = answer({r: n for r, (n, _) in counts.items()})
    for rank in made["communicators"][0]["ranks"]:
        rank["collective_counts"]["Broadcast"] = counts[rank["rank"]][1]
    return json.dumps(made, indent=1)


@pytest.mark.parametrize("text", [OTHER, counted({**dict.fromkeys(range(7), (64, 0)), 7: (63, 1)})], ids=["text", "json"])
def test_another_operation_in_place_of_one(text: str) -> None:
    """Fewer of one and more of another: no order of one program has both."""
    (finding,) = said(text).values()
    assert (finding.slug, finding.subject, finding.severity) == ("rank-mismatch", "rank:7", ERROR)
    assert "AllReduce 63 times where the others are at 64, Broadcast 1 times where the others are at 0" in finding.message


def test_of_two_ranks_nobody_knows_which_is_right() -> None:
    (finding,) = said(counted({0: (5, 0), 1: (4, 1)})).values()
    assert (finding.slug, finding.subject) == ("rank-mismatch", "host")


@pytest.mark.parametrize("late", [(63, 0), (60, 1), (64, 0)])
def test_a_rank_that_is_only_behind_calls_nothing_else(late: tuple[int, int]) -> None:
    found = said(counted({**dict.fromkeys(range(7), (64, 1)), 7: late}))
    assert set(found) == {("collective-timeout", "rank:7")} and all(f.severity == WARNING for f in found.values())
    # One that is ahead in both.
    assert not any(slug == "rank-mismatch" for slug, _ in said(counted({**dict.fromkeys(range(7), (60, 1)), 7: (64, 2)})))
