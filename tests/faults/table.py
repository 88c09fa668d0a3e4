"""The faults of a program, and what a run may come to that meets one."""

from __future__ import annotations

from typing import NamedTuple

INTACT, LOST, PART = "intact", "lost", "part"  # what is left of the answer


class Fault(NamedTuple):
    """One way a program can be sick. `says`: the words that name it in a report, where its answer is lost."""

    id: str
    words: str
    leaves: str
    says: str = ""
    hangs: bool = False
    whole: bool = False  # a fault of the file, so of every invocation of the program


FAULTS: tuple[Fault, ...] = (
    Fault("absent", "absent", LOST, "not installed", whole=True),
    Fault("barred", "not executable", LOST, "not executable", whole=True),
    Fault("folder", "is a directory", LOST, "is a directory", whole=True),
    Fault("foreign", "no program of this machine (ENOEXEC)", LOST, "could not be started", whole=True),
    Fault("interpreter", "its interpreter is missing", LOST, "interpreter", whole=True),
    Fault("hang", "hangs, deaf to SIGTERM, half an answer", LOST, "no answer", hangs=True),
    Fault("hang:setsid", "hangs, and in a grandchild of another session", LOST, "no answer", hangs=True),
    Fault("drip", "a byte a second", LOST, "no answer", hangs=True),
    Fault("stays:setsid", "answers; a grandchild of another session holds the pipe", INTACT),
    Fault("stays:100", "answers; leaves 100 children, half of other sessions", INTACT),
    Fault("signal:11", "SIGSEGV after half an answer", LOST, "signal 11"),
    Fault("signal:9", "SIGKILL (as by the kernel when memory is out)", LOST, "signal 9"),
    *(Fault(f"exit:{n}", f"exit status {n}, a message on standard error", LOST, f"exit status {n}") for n in (1, 2, 6, 9, 127, 255)),
    Fault("empty", "no output, exit status 0", LOST, "printed nothing"),
    Fault("cut:1", "cut after line 1", PART),
    Fault("cut:4", "cut after line 4", PART),
    Fault("cut:word", "cut inside a line, after two thirds", PART),
    Fault("random:1", "random bytes", PART),
    Fault("latin1", "not UTF-8", PART),
    Fault("nul", "NULs between words, and 1 MiB of them", PART),
    Fault("flood", "flood of 300 MB", LOST, "size limit"),
    Fault("flood:endless", "endless flood", LOST, "size limit"),
    Fault("flood-stderr", "endless flood on standard error", LOST, "size limit"),
    Fault("line:20", "one line of 20 MiB", PART),
    Fault("line:64", "one line of 64 MiB", LOST, "size limit"),
    Fault("locale", "another language, decimal comma", PART),
    Fault("stderr", "the answer on standard error", LOST, "printed nothing"),
    Fault("late", "the second half after it exited, by a background child", PART),
    Fault("stdin", "reads standard input to its end, then answers", INTACT),
    Fault("escapes", "terminal escapes and markup in every line", PART),
)
BY_ID = {fault.id: fault for fault in FAULTS}
