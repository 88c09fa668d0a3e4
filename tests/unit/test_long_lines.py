"""Lines of 64 kB made of what an expression repeats: they are read in a moment, and what stands beside them is kept.

An expression that goes back over them takes from seconds to hours, so that this file would not end.
"""

from __future__ import annotations

import pytest

from gpudoctor.facts.nccl import Nccl
from gpudoctor.ingest import take
from gpudoctor.read.source import Document

INIT = b"node1:1:1 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc - Init START\n"
HEAD = b"node1:1:1 [0] NCCL INFO "
SIZE = 1 << 16


@pytest.mark.parametrize(
    "line",
    [
        HEAD + b"Channel 00 : " + b" " * SIZE + b"via\n",
        HEAD + b"NCCL_DEBUG set by environment to INFO" + b" " * SIZE + b"\n",
        HEAD + b"x\\n" * (SIZE // 3) + b"x\n",
        HEAD + b"\\n" * (SIZE // 2) + b"x\n",
        "│ ".encode() + HEAD + b" " * SIZE + "x │\n".encode(),
        b"a.cc:1 (" * (SIZE // 8) + b"NCCL WARN x\n",
        b"a_" * (SIZE // 2) + b".:1 NCCL WARN x\n",
        HEAD + b"a" * SIZE + b" NCCL WARN x NCCL WARN x\n",
        b"RendezvousTimeoutError exitcode Xid NCCL GPU0 " * (SIZE // 45) + b"\n",
    ],
    ids=range(9),
)
def test_a_long_line_is_no_work(line: bytes) -> None:
    (store,) = take((), [Document(name="job.log", chunks=lambda: iter((INIT + line * 4,)), again=True)]).stores
    nccl = store.get(Nccl)
    assert nccl is not None
    (comm,) = nccl.comms
    assert [r.rank for r in comm.ranks] == [0]


def test_a_setting_ends_where_its_blanks_begin() -> None:
    line = HEAD + b"NCCL_DEBUG set by environment to INFO" + b" \r \n"
    (store,) = take((), [Document(name="job.log", chunks=lambda: iter((INIT + line,)), again=True)]).stores
    nccl = store.get(Nccl)
    assert nccl is not None
    (comm,) = nccl.comms
    assert comm.env["NCCL_DEBUG"] == "INFO"
