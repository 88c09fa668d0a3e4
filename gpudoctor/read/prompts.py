"""What a shell shows above an output: the command that printed it, and the host that the prompt names."""

from __future__ import annotations

import re

MAX_DISTANCE = 8  # lines between a command and its output

# `root@node07:~# nvidia-smi topo -m`, `[user@node07 ~]$ lspci`, `user@node07 ~ % nvidia-smi`, `$ nvidia-smi`, `# lspci`
_PROMPT = re.compile(
    r"^\s*(?:\$\s)?(?:\([\w.-]+\)\s*)?(?:\[?(?P<user>[\w.-]+)@(?P<host>[\w.-]+)[\s:][^$#%]{0,120}?\]?\s?[$#%]|[$#+])\s+(?P<command>\S.*)$"
)
# Finds every such line that names a host, in a whole text at once.
PROMPT_HINT = r"@[\w.-]{1,64}[\s:][^$#%\n]{0,120}[$#%] "
PROGRAMS = (
    "nvidia-smi", "lspci", "numactl", "lscpu", "df", "ulimit", "lsmod", "ibstat", "ibv_devinfo", "ibstatus", "ibdev2netdev", "dmesg", "dcgmi", "env", "printenv", "cat",
)  # fmt: skip
_PROGRAMS = rf"(?:{'|'.join(PROGRAMS)})"
# The command stands on a line of its own (nvidia-bug-report, `==> FILE <==` of head and tail) or in a sentence.
_BARE = re.compile(rf"^\s*(?:sudo\s+)?(?:/\w+){{0,4}}/?(?P<command>{_PROGRAMS}\b(?:\s+\S+){{0,12}})\s*$")
_NAMED = re.compile(r"(?P<command>\bnvidia-smi(?: +[-\w./=,*]+){1,12}|(?<!nvidia-smi )\btopo -p2p \w{1,5}|\blspci -\w[-\w .:]{0,80}|(?<===> )/\S+)")
_ONE_DEVICE = re.compile(r"(?:sudo\s+)?lspci\s[^|;&]*-\w*s\s")  # after a `#`, that is no comment on what stands above
_SEVERAL = re.compile(r"\s*(?:;|&&|\|\|)\s*")
# Which commands can have printed an output that its command explains; any can for the kinds not named here.
_PRINTS = {
    # Mistyped (`-p2p -p`) or without its value it prints a complaint.
    "smi-topo": re.compile(r"\btopo\b(?!.*\s(?:-p2p|--p2pstatus)(?:\s*$|[\s=]+[^\srwnap]))"),
    "smi-nvlink": re.compile(r"\bnvlink\b|\s(?:-L|--list-gpus)\b"),
    "df": re.compile(r"\bdf\b"),
    "lspci": re.compile(r"\blspci\b(?!\s+-\w*t)|\bsetpci\b|\bfor\b"),  # the tree of -t has no blocks
    "nccl-conf": re.compile(r"\b(?:env|printenv|export|cat|head|tail|more|less|grep)\b|nccl\.conf"),
}


class Prompts:
    """The commands echoed in one document and not yet followed by their output, and whose prompt stood last."""

    def __init__(self, host: str | None = None) -> None:
        self.host = host
        self._commands: list[tuple[str, int]] = []  # with the line

    def read(self, text: str, number: int) -> bool:
        """Note a command echoed in this line, and the host its prompt names; True where the line is nothing else."""
        found = _PROMPT.match(text) if "@" in text or text.lstrip()[:1] in ("$", "#", "+") else None
        if found is not None:
            if found["host"] and found["user"] != "git":
                self.host = found["host"]
            self._note(found["command"], number)
            return found["host"] is not None or text.lstrip()[:1] in ("$", "+") or bool(_ONE_DEVICE.match(found["command"]))
        bare = _BARE.match(text) if len(text) < 200 else None
        if bare is not None:
            self._note(bare["command"], number)
            return True
        if "nvidia-smi " in text or "lspci " in text or "topo -p2p " in text or "==> /" in text:
            for named in _NAMED.finditer(text[:400]):
                self._note(named["command"], number)
        return False

    def _note(self, command: str, number: int) -> None:
        self._commands = [(c, n) for c, n in self._commands if number - n <= MAX_DISTANCE][-16:]
        self._commands += [(part, number) for part in _SEVERAL.split(command.strip()) if part]

    def command_of(self, kind: str, number: int) -> str | None:
        """The oldest echoed command, not too far above, that can have printed the output that begins in this line."""
        near = [(c, n) for c, n in self._commands if number - n <= MAX_DISTANCE]
        can = _PRINTS.get(kind)
        taken = next((entry for entry in near if can is None or can.search(entry[0])), None)
        self._commands = [entry for entry in near if entry is not taken]
        return taken[0] if taken else None

    def output_ended(self, number: int) -> None:
        """What was typed in one line (`nvidia-smi; nvidia-smi topo -m`) prints one after the other."""
        self._commands = [(c, number) for c, _ in self._commands]
