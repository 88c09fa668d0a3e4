"""A job that its launcher could not start: told in the launcher's words, never healthy, and no alarm over anything else.

Texts in the shape of Open MPI 4 and 5, Slurm 23, OpenSSH, torch 2.5 and MPICH's mpiexec; synthetic.
"""

from __future__ import annotations

import pytest

from gpudoctor.model import Report
from tests.support import section
from tests.unit.test_homes import P2P, host, log, report

RULE = "-" * 74 + "\n"
ORTE = RULE + "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:\n\n* not finding the required libraries and/or binaries on\n" + RULE
COULD_NOT = [
    ("bash: line 1: orted: command not found\n" + ORTE, "orted: command not found", "mpirun --prefix"),
    ("sh: 1: prted: not found\n", "prted: not found", "mpirun --prefix"),
    ("ssh: Could not resolve hostname node07: Name or service not known\n" + ORTE, "Could not resolve hostname node07", "getent hosts"),
    ("Host key verification failed.\n" + ORTE, "Host key verification failed.", "BatchMode"),
    (ORTE, "ORTE was unable to reliably start one or more daemons.", "lines above it"),
    (RULE + "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-a-2211@0,0] on node a\n", "PRTE has lost communication", "is it up"),
    (RULE + "There are not enough slots available in the system to satisfy the 16\nslots that were requested by the application:\n\n  ./all_reduce_perf\n", "satisfy the 16 slots that were requested", "-H node1:8"),
    (RULE + "mpirun was unable to launch the specified application as it could not access\nor execute an executable:\n\nExecutable: ./all_reduce_perf\n", "could not access or execute an executable:", "share"),
    (RULE + "mpirun has detected an attempt to run as root.\n", "attempt to run as root", "--allow-run-as-root"),
    ('The application appears to have been direct launched using "srun",\nbut OMPI was not built with SLURM\'s PMI support\n', 'direct launched using "srun", but OMPI was not built', "srun --mpi=list"),
    ("srun: error: Unable to create step for job 4711: More processors requested than permitted\n", "More processors requested than permitted", "sinfo"),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available\n", "Batch job submission failed", "sinfo"),
    ("slurmstepd: error: execve(): ./train.sh: No such file or directory\nsrun: error: node01: task 0: Exited with exit code 2\n", "./train.sh", "executable"),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n", "EADDRINUSE", "--master-port"),
    ("RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n", "(port 29500)", "ss -ltnp"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError\n", "RendezvousClosedError", "its log"),
]  # fmt: skip
FOUND = [
    ("ssh: connect to host node02 port 22: Connection refused\n" + ORTE, "network-error", "node02"),
    ('[mpiexec@a] HYDU_sock_connect (sock.c:145): unable to connect from "b" to "a" (No route to host)\n', "network-error", "could not reach a:"),
    ("$ deepspeed --hostfile hosts train.py\nnode02: ssh: connect to host node02 port 22: Connection timed out\n", "network-error", "node02"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.\n", "network-error", "C10d store"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n", "collective-timeout", "--rdzv-id"),
]  # fmt: skip


def why(told: Report) -> str:
    (missing,) = [m for m in told.missing if m.fact == "why the job did not start"]
    assert missing.needed
    return missing.reason


@pytest.mark.parametrize(("text", "words", "todo"), COULD_NOT)
def test_it_is_told_in_the_launchers_words(text: str, words: str, todo: str) -> None:
    told = report("Hello, this is what I get:\n\n" + text)
    assert told.verdict == "unknown" and told.exit_code == 3 and not told.diagnoses
    reason = why(told)
    assert words in reason and todo in reason and "f0.txt, line " in reason


@pytest.mark.parametrize(("text", "slug", "words"), FOUND)
def test_what_has_a_name_is_found(text: str, slug: str, words: str) -> None:
    told = report(text)
    (diagnosis,) = told.diagnoses
    assert told.exit_code == 1 and diagnosis.finding.slug == slug and words in diagnosis.finding.message and diagnosis.finding.remediation


@pytest.mark.parametrize("name", ["$(id);x", "-oProxyCommand=id", "`id`", "a|sh", "node02;id"])
def test_a_name_that_a_shell_would_run_stands_in_no_command(name: str) -> None:
    (diagnosis,) = report(f"ssh: connect to host {name} port 2222: Connection refused\n" + ORTE).diagnoses
    assert [step.command for step in diagnosis.finding.remediation] == ["nc -vz HOST 2222", "ssh -o BatchMode=yes -p 2222 HOST true"]


def test_the_commands_name_the_host_and_its_port() -> None:
    (diagnosis,) = report("ssh: connect to host node02 port 22: Connection refused\n" + ORTE).diagnoses
    assert [step.command for step in diagnosis.finding.remediation] == ["nc -vz node02 22", "ssh -o BatchMode=yes node02 true"]


@pytest.mark.parametrize(("text", "words", "todo"), COULD_NOT[:8])
def test_beside_a_sound_host_it_is_no_pass(text: str, words: str, todo: str) -> None:
    told = report(host("node01"), text)
    assert told.exit_code == 3 and words in why(told)


@pytest.mark.parametrize(
    "text",
    [
        "I once had `There were not enough slots`, but that is mended.\n",
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n",
        "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.\n",  # another agent of the node serves it
        "srun: error: node01: task 0: Exited with exit code 1\n",
        "srun: Job 4711 step creation temporarily disabled, retrying (Requested nodes are busy)\n",
        "except RendezvousTimeoutErrorHandler:\n",
    ],
)
def test_what_only_sounds_like_it(text: str) -> None:
    told = report(host("node01"), text)
    assert told.exit_code == 0 and not any(m.fact == "why the job did not start" for m in told.missing)


@pytest.mark.parametrize(("text", "words", "todo"), COULD_NOT)
def test_a_run_that_started_shows_that_it_was_another_attempt(text: str, words: str, todo: str) -> None:
    assert report(text + log({"node07": P2P})).exit_code == 0


def test_a_host_whose_outputs_could_not_be_had() -> None:
    """`pdsh nvidia-smi …` over many hosts: one of them is down, which says nothing of the others, nor of a job."""
    text = "node02: ssh: connect to host node02 port 22: No route to host\n"
    told = report(host("node01"), text)
    assert told.exit_code == 0 and [m.fact for m in told.missing if "ssh says" in m.reason] == ["what node02 would tell"]
    assert report(text).exit_code == 3


def test_a_result_without_a_name_is_no_pass() -> None:
    failed = "Failed, NCCL error /src/cpp/tensorrt_llm/plugins/ncclPlugin/allreducePlugin.cpp:183 'unknown result code'\n"
    own = "vm:1:1 [0] init.cc:303 NCCL WARN Attempt to use communicator before the previous operation returned ncclSuccess\n"
    for text, words in ((failed, "NCCL_DEBUG=WARN"), (failed + own, "before the previous operation returned")):
        told = report(text)
        (missing,) = [m for m in told.missing if m.fact == "why NCCL failed"]
        assert told.exit_code == 3 and "unknown result code" in missing.reason and words in missing.reason


def test_a_cut_anywhere_changes_no_value() -> None:
    from gpudoctor.facts.launch import StartFailures
    from gpudoctor.parsers.start_failure import parse
    def failures(text: str) -> set[tuple[str, str | None, int | None]]:
        return {(f.kind, f.peer, f.port) for fact in parse(section("start-failure", text)) if isinstance(fact, StartFailures) for f in fact.failures}

    for text, *_ in (*COULD_NOT, *FOUND):
        whole = failures(text)
        assert whole
        for end in range(len(text)):
            for kind, peer, port in failures(text[:end]):
                assert any(kind == k and peer == p and port in (None, n) for k, p, n in whole), text[:end]
    assert not list(parse(section("start-failure", "nothing\n")))


@pytest.mark.parametrize("version", ["NCCL version 2.21.5+cuda12.4\n", "- NCCL version: 2.21.5\n"])
def test_a_version_is_no_run(version: str) -> None:
    text, words, _ = COULD_NOT[6]
    told = report(version + text)
    assert told.exit_code == 3 and words in why(told)
    assert report(version + FOUND[0][0]).exit_code == 1


LOST = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.\n"
MET = [
    "I0301 12:00:09.123000 41 torch/distributed/elastic/agent/server/api.py:525] [default] Rendezvous complete for workers. Result:\n  restart_count=0\n  master_port=29500\n",
    "I0301 12:00:09.123000 41 dynamic_rendezvous.py:1058] The node 'node07_41_0' has joined round 0 of the rendezvous 'job' as rank 0 in a world of size 2.\n",
    "INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous'ed worker group\n",
]


@pytest.mark.parametrize("met", MET)
def test_a_rendezvous_that_came_about_after_all_had_only_been_tried_early(met: str) -> None:
    told = report(LOST + met + "step 1\n")
    assert not told.diagnoses and not any(m.fact == "why the job did not start" for m in told.missing)


@pytest.mark.parametrize("met", MET)
def test_a_rendezvous_that_was_lost_later_is_lost(met: str) -> None:
    (diagnosis,) = report(met + "step 1\n" + LOST).diagnoses
    assert diagnosis.finding.slug == "network-error"


def test_what_else_failed_is_not_mended_by_a_rendezvous() -> None:
    assert report(COULD_NOT[0][0] + MET[0]).exit_code == 3
