"""Shell prompts and echoed commands, line by line."""

from __future__ import annotations

from gpudoctor.read.prompts import MAX_DISTANCE, Prompts


def test_the_last_prompt_names_the_host() -> None:
    prompts = Prompts("given")
    assert prompts.host == "given"
    assert prompts.read("root@node07:~# nvidia-smi topo -m", 1) and prompts.host == "node07"
    assert prompts.read("$ nvidia-smi", 2) and prompts.host == "node07"
    assert not prompts.read("git@example.org:x/y.git", 3) and prompts.host == "node07"


def test_a_comment_is_noted_but_may_go_on_what_stands_above() -> None:
    prompts = Prompts()
    assert prompts.read("# lspci -vvv", 1) is False
    assert prompts.command_of("lspci", 2) == "lspci -vvv"
    assert prompts.read("# lspci -vvs 0000:41:00.0", 3) is True


def test_each_output_takes_the_oldest_command_that_can_have_printed_it() -> None:
    prompts = Prompts()
    assert prompts.read("$ lscpu; nvidia-smi topo -m && df -h /dev/shm", 1)
    assert prompts.command_of("smi-topo", 2) == "nvidia-smi topo -m"
    assert prompts.command_of("smi-topo", 3) is None
    assert prompts.command_of("df", 3) == "df -h /dev/shm"
    assert prompts.command_of("df", 3) is None


def test_a_command_is_near_its_output_or_the_end_of_the_output_before() -> None:
    prompts = Prompts()
    prompts.read("$ nvidia-smi; df -h", 1)
    assert prompts.command_of("smi-table", 2) == "nvidia-smi"
    prompts.output_ended(40)
    assert prompts.command_of("df", 40 + MAX_DISTANCE) == "df -h"
    prompts.read("$ df -h", 50)
    assert prompts.command_of("df", 51 + MAX_DISTANCE) is None


def test_a_mistyped_command_prints_no_matrix() -> None:
    prompts = Prompts()
    prompts.read("root@node07:~# nvidia-smi topo -p2p -p", 1)
    prompts.read("root@node07:~# nvidia-smi topo -p2p", 2)
    prompts.read("root@node07:~# nvidia-smi topo -p2p p", 3)
    assert prompts.command_of("smi-topo", 4) == "nvidia-smi topo -p2p p"
    prompts.read("$ nvidia-smi topo -p2p rw", 9)
    assert prompts.command_of("smi-topo", 10) == "nvidia-smi topo -p2p rw"
