"""Ask NCCL's RAS service of a running job (2.24 and later) what it knows of itself. A few lines over a plain socket.

The service has no authentication and listens on localhost by default; it is asked elsewhere only where the user says so.
What it is asked changes nothing. It may be any program that happens to listen there, so every read has an end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

PORT = 28028
LIMIT_S = 10.0  # for one answer; the service itself gives up on its peers after its own --timeout, 5 s
AGAIN_S = 2.0  # between two answers: counters that stand still for so long are not those of a job that runs
MAX_ANSWER = 64 << 20
_LINE = 4096


class RasSilent(Exception):
    """No answer, and why in words."""


class _Closed(RasSilent):
    """The connection ended before the answer."""


class Address(NamedTuple):
    """Where the service listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """`HOST`, `HOST:PORT`, `[::1]:PORT`, `:PORT`. Raises ValueError for anything else."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or "]" in port or text.count(":") > 1 and not host.startswith("["):
        host, port = text.strip(), ""
    host = host.strip("[]") or "localhost"
    number = int(port) if port else PORT
    if not 0 < number < 65536 or not all(c.isalnum() or c in ".-:%_" for c in host) or len(host) > 253:
        raise ValueError(f"not an address: {text!r}")
    return Address(host, number)


def ask(where: Address, limit_s: float = LIMIT_S) -> bytes:
    """One answer to VERBOSE STATUS: JSON where the version has it, else text. Raises RasSilent."""
    end = time.monotonic() + limit_s
    try:
        return _ask(where, limit_s, end, json=True)
    except _Closed:
        return _ask(where, limit_s, end, json=False)  # a version that ends the talk at a word it does not know


def _ask(where: Address, limit_s: float, end: float, json: bool) -> bytes:
    try:
        with socket.create_connection(where, timeout=max(0.05, limit_s)) as connection:
            talk = _Talk(connection, end)
            first = talk.say("CLIENT PROTOCOL 2")
            if not first.startswith(b"SERVER PROTOCOL"):
                raise RasSilent("what listens there is not NCCL's RAS service")
            talk.say(f"TIMEOUT {max(1, int(limit_s / 2))}")
            if json:
                talk.say("SET FORMAT json")  # before 2.28.7 an error, and text follows
            talk.send("VERBOSE STATUS")
            return talk.rest()
    except ConnectionRefusedError as error:
        raise RasSilent("nothing listens there: no NCCL job of 2.24 or later runs on this host, or NCCL_RAS_ENABLE=0") from error
    except (ConnectionResetError, BrokenPipeError) as error:
        raise _Closed("it closed the connection") from error
    except TimeoutError as error:
        raise RasSilent(f"no whole answer in {limit_s:g} s") from error
    except (OSError, UnicodeError) as error:
        raise RasSilent(str(getattr(error, "strerror", None) or error)) from error


class _Talk:
    def __init__(self, connection: socket.socket, end: float) -> None:
        self.connection = connection
        self.end = end
        self.held = b""

    def send(self, words: str) -> None:
        self._patience()
        self.connection.sendall(words.encode() + b"\n")

    def say(self, words: str) -> bytes:
        """Send one line and wait for the line that answers it."""
        self.send(words)
        while b"\n" not in self.held:
            if len(self.held) > _LINE:
                raise RasSilent("what listens there is not NCCL's RAS service")
            if not self._more():
                raise _Closed("it closed the connection")
        line, self.held = self.held.split(b"\n", 1)
        return line

    def rest(self) -> bytes:
        """All that follows until the service closes the connection. A part is no answer."""
        while self._more():
            if len(self.held) > MAX_ANSWER:
                raise RasSilent(f"its answer passed {MAX_ANSWER >> 20} MiB")
        if not self.held.strip():
            raise _Closed("it closed the connection without an answer")
        return self.held

    def _more(self) -> bool:
        self._patience()
        part = self.connection.recv(1 << 16)
        self.held += part
        return bool(part)

    def _patience(self) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)


def look(text: str, limit_s: float, differs: Callable[[bytes], bool]) -> tuple[list[tuple[str, bytes]], str | None]:
    """Answers by name, and why there is none (or no second one where the first shows ranks that differ).

    differs: is there anything in an answer that a second one could settle?
    """
    where = address(text)
    name = f"RAS service at {where}"
    began = time.monotonic()
    try:
        first = ask(where, min(LIMIT_S, limit_s))
    except RasSilent as silent:
        return [], str(silent)
    answers = [(name, first)]
    left = limit_s - (time.monotonic() - began) - AGAIN_S
    if differs(first) and left > 1:
        time.sleep(AGAIN_S)
        try:
            answers.append((f"{name}, again", ask(where, min(LIMIT_S, left))))
        except RasSilent as silent:
            return answers, f"it answered once, and then not again: {silent}"
    return answers, None
