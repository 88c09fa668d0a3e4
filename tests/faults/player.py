"""A sick tool: FAULT, the file with its honest answer, then the words it was called with. Nothing of gpudoctor is imported.

Run with `python -SE`, so that it starts about as quickly as the tool would.
"""

import os
import random
import re
import signal
import sys
import time

FOREVER_S = 600.0  # longer than any run of gpudoctor here
FLOOD = 300 << 20


def put(content, to=1):
    while content:
        content = content[os.write(to, content[: 1 << 20]) :]


def sleep_forever():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOREVER_S)
    os._exit(0)


def child(leave_session, then):
    """A child that does `then`; it keeps our output open. Returns once it has left the session."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        if leave_session:
            os.setsid()
        os.close(write)
        then()
        os._exit(0)
    os.close(write)
    os.read(read, 1)
    os.close(read)


def translated(content):
    """As a tool does that prints in the user's language, with a decimal comma."""
    for word, other in ((b"GPU", "Графический процессор"), (b"Link", "Verbindung"), (b"Legend", "Légende"), (b"Speed", "Velocità")):
        content = content.replace(word, other.encode())
    return re.sub(rb"(?<![\d.])(\d+)\.(\d+)(?![\d.])", rb"\1,\2", content)  # 25.00 W, no version


def marked_up(content):
    """Terminal escapes, a window title, markup and a bell in every line."""
    lines = content.split(b"\n")
    return b"\n".join(b"\x1b]0;owned\x07\x1b[31m" + line + b"\x1b[0m <script>alert(1)</script>[bold]" for line in lines)


def main():
    fault, path = sys.argv[1], sys.argv[2]
    with open(path, "rb") as stream:
        content = stream.read()
    kind, _, detail = fault.partition(":")
    if kind == "hang":
        put(content[: len(content) // 2])
        if detail == "setsid":
            child(True, sleep_forever)
        sleep_forever()
    elif kind == "stays":  # a good answer, and somebody left behind who holds the output open
        for number in range(100 if detail == "100" else 1):
            child(detail == "setsid" or number % 2 == 1, sleep_forever)
        put(content)
    elif kind == "signal":
        put(content[: len(content) // 2])
        os.kill(os.getpid(), int(detail))
    elif kind == "exit":
        put(b"the played tool has failed\n", 2)
        return int(detail)
    elif kind == "empty":
        return 0
    elif kind == "cut":
        lines = content.splitlines(keepends=True)
        put(b"".join(lines[: int(detail)]) if detail != "word" else content[: len(content) * 2 // 3])
    elif kind == "random":
        put(random.Random(int(detail or 1)).randbytes(20000))
    elif kind == "latin1":
        put(content.replace(b"NVIDIA", b"NVIDI\xc4").replace(b"Legend", b"L\xe9gende").replace(b"\n", b" \xff\xfe\n"))
    elif kind == "nul":
        put(content.replace(b" ", b" \0") + b"\0" * (1 << 20))
    elif kind == "flood":
        sent = 0
        while detail == "endless" or sent < FLOOD:
            put(b"y\n" * 500000)
            sent += 1000000
    elif kind == "flood-stderr":
        while True:
            put(b"y\n" * 500000, 2)
    elif kind == "drip":
        for byte in content * 1000:
            put(bytes((byte,)))
            time.sleep(1.0)
    elif kind == "line":  # one line of so many MiB
        for _ in range(int(detail)):
            put(b"x" * (1 << 20))
    elif kind == "locale":
        put(translated(content))
    elif kind == "stderr":
        put(content, 2)
    elif kind == "late":

        def rest():
            time.sleep(0.5)
            put(content[len(content) // 2 :])

        put(content[: len(content) // 2])
        child(False, rest)
    elif kind == "stdin":
        while os.read(0, 1 << 16):
            pass
        put(content)
    elif kind == "escapes":
        put(marked_up(content))
    elif kind == "well":
        put(content)
    else:
        put(f"no such fault: {fault}\n".encode(), 2)
        return 99
    return 0


if __name__ == "__main__":
    sys.exit(main())
