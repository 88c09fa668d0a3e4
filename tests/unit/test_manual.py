"""Manual pages and completions come out of the commands: all of them, in words that man and the shells take."""

import os
import shutil
import subprocess
import sys

import click
import pytest

from gpudoctor.cli.main import COMMANDS, cli
from tools.man import made, plain

MADE = made()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_its_page(name):
    command = cli.get_command(click.Context(cli), name)
    shown = MADE[f"man/man1/gpudoctor-{name}.1"]
    for option in command.params:
        for word in (*option.opts, *option.secondary_opts) if isinstance(option, click.Option) and not option.hidden else ():
            assert f"{plain(word)}" in shown, word
    assert f"gpudoctor\\-{name}" in MADE["man/man1/gpudoctor.1"]


def test_hidden_options_stay_hidden():
    assert "debug" not in MADE["man/man1/gpudoctor-check.1"]


def test_no_word_is_taken_for_a_request():
    assert plain(".so /etc/passwd\n'tis") == "\\&.so /etc/passwd\n\\&'tis"
    assert plain("a " * 60 + ".b", 20).count("\n.") == 0
    assert plain("back\\slash --long") == "back\\eslash \\-\\-long"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_has_nothing_to_say(tmp_path):
    for path, content in MADE.items():
        if path.startswith("man/"):
            page = tmp_path / os.path.basename(path)
            page.write_text(content)
            said = subprocess.run(["mandoc", "-Tlint", "-Wstyle", page], capture_output=True, text=True)
            assert said.stdout == "" and said.returncode == 0


@pytest.fixture
def path(tmp_path):
    """A PATH with the command as an installed one is called."""
    script = tmp_path / "gpudoctor"
    script.write_text(f"#!{sys.executable}\nfrom gpudoctor.cli.main import main\nmain()\n")
    script.chmod(0o755)
    for name in MADE:
        file = tmp_path / "share" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MADE[name])
    return f"{tmp_path}:{os.environ['PATH']}"


def test_bash_completes(path, tmp_path):
    code = (
        f"source {tmp_path}/share/bash-completion/completions/gpudoctor; COMP_WORDS=(gpudoctor ba); COMP_CWORD=1; "
        "_gpudoctor_completion gpudoctor; echo ${COMPREPLY[@]}; COMPREPLY=(); COMP_WORDS=(gpudoctor check --fo); "
        "COMP_CWORD=2; _gpudoctor_completion gpudoctor; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.stdout.split() == ["bandwidth", "--format"], done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(path, tmp_path):
    code = f"source {tmp_path}/share/fish/vendor_completions.d/gpudoctor.fish; complete -C 'gpudoctor ba'"
    done = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.stdout.split() and done.stdout.split()[0] == "bandwidth", done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_its_file(path, tmp_path):
    done = subprocess.run(["zsh", "-fn", f"{tmp_path}/share/zsh/site-functions/_gpudoctor"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    env = {**os.environ, "PATH": path, "COMP_WORDS": "gpudoctor ba", "COMP_CWORD": "1", "_GPUDOCTOR_COMPLETE": "zsh_complete"}
    assert b"bandwidth" in subprocess.run(["gpudoctor"], capture_output=True, env=env).stdout
