"""`gpudoctor explain` with several names; one that is unknown is wrong usage."""

import json
from pathlib import Path

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


def said_of(line: str) -> dict[str, object]:
    done = explain(line, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["explain"]


BEFORE = "vm:817:830 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("words", "value", "slug"),
    [
        ("NCCL_P2P_DISABLE set by environment to 1", "NCCL_P2P_DISABLE=1,", "p2p-disabled-env"),
        ("NCCL_P2P_LEVEL set by environment to LOC", "NCCL_P2P_LEVEL=LOC,", "p2p-disabled-env"),
        ("NCCL_IB_TIMEOUT set by environment to 22.", "NCCL_IB_TIMEOUT=22,", "nccl-env"),
        ("NCCL_SOCKET_IFNAME set to eth0", "NCCL_SOCKET_IFNAME=eth0,", "nccl-env"),
        ("NCCL_X set by environment to 5.", "NCCL_X=5,", "nccl-env"),
    ],
)
def test_a_setting_as_nccl_prints_it(words, value, slug):
    for line in (BEFORE + words, words):
        said = said_of(line)
        assert value in said["meaning"] and said["causes"][0]["slug"] == slug
    assert "No release that was read here knows" in said["meaning"] or "NCCL_X" not in words


@pytest.mark.parametrize(
    ("via", "saying"),
    [
        ("NET/Socket/0", "via-socket"),
        ("NET/IB/0", "via-net"),
        ("NET/IB/0(5)/Shared", "via-net"),
        ("NET/IB/0/GDRDMA", "via-net-gdr"),
        ("NET/AWS Libfabric/3/GDRDMA", "via-net-gdr"),
        ("SHM/direct/direct", "via-shm"),
        ("SHM/direct", "via-shm"),
        ("P2P/CUMEM", "via-p2p"),
        ("P2P/IPC/read", "via-p2p"),
        ("P2P/direct pointer", "via-p2p"),
    ],
)
def test_the_transport_of_a_connection(via, saying):
    between = "[receive] via" if via.startswith("NET") else "via"
    for line in (f"{BEFORE}Channel 00/0 : 1[1] -> 0[0] {between} {via}", f"via {via}"):
        assert said_of(line)["saying"] == saying
    assert "Severity" not in explain(line).stdout  # the line may be that of a healthy job


@pytest.mark.parametrize(
    ("place", "code", "name", "slug"),
    [
        ("transport/nvls.cc:254", 1, "ncclUnhandledCudaError", "cuda-error"),
        ("group.cc:64 (ncclGroupEnd)", 2, "ncclSystemError", "network-error"),
        ("misc/socket.cc:881", 3, "ncclInternalError", "peer-died"),
        ("enqueue.cc:40", 4, "ncclInvalidArgument", "rank-mismatch"),
        ("init.cc:1358", 5, "ncclInvalidUsage", "duplicate-gpu"),
        ("misc/socket.cc:64", 6, "ncclRemoteError", "peer-died"),
        ("proxy.cc:965", 6, "ncclRemoteError", "peer-died"),
    ],
)
@pytest.mark.parametrize("thread", ["", " [Progress Thread]"])
def test_a_result_is_an_echo_of_nccls_own(place, code, name, slug, thread):
    for before in (BEFORE, ""):
        said = said_of(f"{before}{place} -> {code}{thread}")
        assert said["saying"] == "nccl-result" and f"result {code} ({name})" in said["meaning"] and "WARN line above it" in said["meaning"]
        assert said["causes"][0]["slug"] == slug


def test_a_result_in_progress_is_no_fault():
    said = said_of(BEFORE + "init.cc:2000 -> 7")
    assert not said["causes"] and "no fault" in said["meaning"] and "WARN" not in said["meaning"]


def test_a_framework_s_word_for_a_result_stays_its_own():
    assert said_of("torch.distributed.DistBackendError: NCCL error: ncclRemoteError: remote process exited")["message"] == "torch-remote"


@pytest.mark.parametrize("line", ["CUDA out of memory.", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."])
def test_memory_that_the_program_asked_for_is_not_laid_on_nccl(line):
    text = " ".join(explain(line).stdout.split())
    assert "NCCL had no part in it" in text and "fails in NCCL" not in text and "NCCL's buffers" not in text


def test_memory_that_nccl_asked_for_is():
    assert said_of("vm:1:2 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'")["message"] == "cuda-oom"


@pytest.mark.parametrize("words", ["hang", "job hangs", "training hangs", "My job is stuck", "one rank hangs"])
def test_a_hang_names_what_to_ask_and_what_to_record(words):
    import gpudoctor.checkers.job_hangs as hangs

    text = explain(words).stdout
    commands = [step["command"] for step in said_of(words)["steps"]]
    assert "gpudoctor check --ras" in commands and all(f"\n            {c}\n" in text for c in commands)  # each on a line of its own
    record = next(c for c in commands if "NCCL_DEBUG" in c)
    assert f'"{record}"' in Path(hangs.__file__).read_text()  # one set of variables, wherever it is told


def test_slow_work_by_who_is_slow():
    assert said_of("my training is slow")["saying"] == "word-slow"


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE is set by environment to 1 on one of our hosts",
        "the data goes via NET/Socket/0 here, we think",
        "we went home via SHM/direct train",
        "P2P/IPC is what we use",
        "the loss went from train.py:12 -> 6",
        "vm:1:2 [0] NCCL INFO init.cc:12 -> 99",
        "see init.cc:12 -> 6 for more",
        "no device found in the box",
        "affinity for cats is empty",
        "the job hangs on the wall",
        "job training",
    ],
)
def test_prose_that_has_their_words_stays_unknown(line):
    done = explain(line)
    assert done.exit_code == 2 and not done.stdout and done.stderr


def piped(text: str, *options: str) -> Result:
    return CliRunner().invoke(command, ["-", *options], input=text, prog_name="gpudoctor explain")


@pytest.mark.parametrize("options", [(), ("--format", "json")])
def test_lines_of_a_paste_that_are_not_known_are_counted(options):
    two = piped("step \x1b[31m12\nvia P2P/IPC\n\nstep 13\n", *options)
    assert two.exit_code == 0 and "2 lines are not known here, the first: 'step \\x1b[31m12'" in two.stderr and "step 1" not in two.stdout and "\x1b" not in two.stderr
    assert piped("step 12\nvia P2P/IPC\n", *options).stderr.startswith("1 line is not known here: 'step 12'")
    assert not piped("via P2P/IPC\nvia SHM/direct\n", *options).stderr


def test_a_paste_of_which_nothing_is_known_is_wrong_usage():
    done = piped("step 12\nstep 13\nstep 14\n")
    assert done.exit_code == 2 and not done.stdout and "none of the 3 lines is known here, the first reads 'step 12'" in done.stderr
