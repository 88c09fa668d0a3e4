"""NCCL's RAS service, sick in every way a socket can be."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HANDSHAKE = b"SERVER PROTOCOL 2\n"
FAULTS = {
    "absent": "refused",
    "silent": "accepts and says nothing",
    "closes": "closes at once",
    "reset": "resets the connection",
    "another": "another service (HTTP)",
    "endless line": "an endless first line",
    "random": "random bytes",
    "nul": "NULs",
    "half": "half an answer, then the end",
    "half, open": "half an answer, then nothing",
    "drip": "a byte a second",
    "flood": "an endless answer",
    "empty": "an empty answer",
}
HALF = b'{"nccl_version": "2.28.9", "communicators": [{"hash": "0x1", "size": 8, "ra'


@contextmanager
def service(fault: str) -> Iterator[str]:
    """Its address. `absent`: a port on which nobody listens."""
    listener = socket.create_server(("127.0.0.1", 0))
    where = f"127.0.0.1:{listener.getsockname()[1]}"
    over = threading.Event()
    if fault == "absent":
        listener.close()
        yield where
        return
    threads = []

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=_answer, args=(connection, fault, over), daemon=True)
            thread.start()
            threads.append(thread)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield where
    finally:
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # closing alone wakes nobody who waits for a connection
        listener.close()
        serving.join(5)
        for thread in threads:
            thread.join(5)


def _answer(connection: socket.socket, fault: str, over: threading.Event) -> None:
    with suppress(OSError), connection:
        connection.settimeout(0.2)
        if fault == "closes":
            return
        if fault == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if fault == "silent":
            over.wait(120)
        elif fault == "another":
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n<html></html>")
        elif fault == "endless line":
            _endless(connection, b"x" * 65536, over)
        elif fault == "random":
            connection.sendall(bytes(range(255, 0, -1)) * 100)
        elif fault == "nul":
            connection.sendall(b"\0" * 100000)
        else:
            _talk(connection, fault, over)


def _talk(connection: socket.socket, fault: str, over: threading.Event) -> None:
    """A service that knows the protocol and gives a sick answer."""
    held = b""
    while not over.is_set():
        try:
            part = connection.recv(4096)
        except TimeoutError:
            continue
        if not part:
            return
        held += part
        while b"\n" in held:
            line, held = held.split(b"\n", 1)
            if line.startswith(b"CLIENT"):
                connection.sendall(HANDSHAKE)
            elif not line.startswith(b"VERBOSE"):
                connection.sendall(b"OK\n")
            elif fault == "half":
                connection.sendall(HALF)
                return
            elif fault == "half, open":
                connection.sendall(HALF)
                over.wait(120)
                return
            elif fault == "drip":
                for byte in HALF * 100:
                    connection.sendall(bytes((byte,)))
                    if over.wait(1):
                        return
            elif fault == "flood":
                _endless(connection, b'{"a": 1}\n' * 8000, over)
            else:
                return


def _endless(connection: socket.socket, what: bytes, over: threading.Event) -> None:
    connection.settimeout(5)
    until = time.monotonic() + 120
    while not over.is_set() and time.monotonic() < until:
        connection.sendall(what)
