"""What a measurement is asked to do, and the refusal to begin one."""

from __future__ import annotations

from gpudoctor.record import KeyedRecord


class Options(KeyedRecord):
    """What the command line asked for."""

    gpus: str = "all"
    collective: str = "all_reduce"
    sizes: tuple[int, ...] | None = None
    full: bool = False
    pairs: bool = False
    engine: str = "auto"
    backend: str = "nccl"
    python: str | None = None
    nccl_tests: str | None = None
    bisect: bool = True
    allow_p2p: bool = False
    host_copies: bool = True
    force: bool = False
    hang_s: float = 30.0


class NotStarted(Exception):
    """Nothing was measured, and it is no fault of the links. `fact` is what is missing, the words say why and what to do."""

    def __init__(self, fact: str, reason: str, hint: str | None = None, of_host: bool = False) -> None:
        super().__init__(reason)
        self.of_host = of_host  # GPUs, driver or CUDA: a look at the host may say why
        self.fact = fact
        self.reason = reason
        self.hint = hint
