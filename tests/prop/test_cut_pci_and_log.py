"""Cut anywhere, and random bytes: what is read from a part never differs from what the whole says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.base import Loss
from gpudoctor.facts.kernel import KernelEvent, KernelLog
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.read.recognise import Recogniser
from tests.support import FIXTURES, parse

LSPCI = FIXTURES / "outputs/lspci"
LOG = (FIXTURES / "outputs/kernel-log/mixed-dmesg.txt").read_text()
SWITCH = (LSPCI / "switch-path-vvv.txt").read_text()
# `bdf` is the key, and evidence points to lines.
FIELDS = [f for f in PciDevice._fields if f not in ("origin", "bdf")]


def devices(text: str) -> dict[str | None, PciDevice]:
    found: list[Any] = parse("lspci", text)
    return {d.bdf: d for fact in found if isinstance(fact, PciTree) for d in fact}


def events(text: str) -> tuple[KernelEvent, ...]:
    found: list[Any] = parse("kernel-log", text)
    return next((fact.events for fact in found if isinstance(fact, KernelLog)), ())


def no_lies(part: str, whole: dict[str | None, PciDevice]) -> None:
    for bdf, device in devices(part).items():
        assert bdf in whole, part[-80:]
        for field in FIELDS:
            value = getattr(device, field)
            if field == "access_denied" and value is False:
                continue  # "not denied so far"
            assert value is None or value == getattr(whole[bdf], field), (field, value, part[-80:])


def test_lspci_cut_at_every_byte() -> None:
    whole = devices(SWITCH)
    for end in range(len(SWITCH)):
        no_lies(SWITCH[:end], whole)


def test_short_lspci_cut_at_every_byte() -> None:
    text = (
        "0000:00:06.0 3D controller [0302]: NVIDIA Corporation GH100 [H200] [10de:2335] (rev a1)\n"
        "0000:00:07.0 0302: 10de:2335 (rev a1)\n"
        '0000:00:08.0 "3D controller" "NVIDIA Corporation" "Device 2335" -ra1 "NVIDIA Corporation" "Device 18be"\n'
        "0000:00:09.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)\n"
    )
    whole = devices(text)
    for end in range(len(text)):
        no_lies(text[:end], whole)


def test_kernel_log_cut_at_every_byte() -> None:
    whole = events(LOG)
    assert len(whole) >= 10
    for end in range(len(LOG)):
        # Stale is the one thing a later line may change: a load of the driver turns what was into history.
        part = events(LOG[:end])
        assert len(part) <= len(whole)
        for got, true in zip(part, whole, strict=False):
            for field in ("kind", "bdf", "code", "fatal", "severity", "link", "bridge", "driver"):
                value = getattr(got, field)
                assert value is None or value == getattr(true, field), (field, value, LOG[:end][-80:])


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_random_bytes(noise: bytes) -> None:
    for kind, text in (("lspci", SWITCH[:900]), ("kernel-log", LOG[:900])):
        at = len(noise) % len(text)
        mixed = text[:at].encode() + noise + text[at:].encode()
        for fact in parse(kind, mixed.decode("utf-8", "replace")):
            assert isinstance(fact, (PciTree, KernelLog, Loss))
        list(Recogniser("noise").run([mixed]))


@given(st.lists(st.sampled_from(SWITCH.split("\n")), max_size=40))
@settings(max_examples=100, deadline=None)
def test_lines_in_any_order_are_survived(lines: list[str]) -> None:
    for fact in parse("lspci", "\n".join(lines) + "\n"):
        assert isinstance(fact, (PciTree, Loss))
