"""`lspci` in any verbosity, whole, filtered, quoted or annotated, to a PciTree.

A block begins at a device's address line. Where a filter (`grep LnkSta`, `grep ACSCtl`) took the address lines away, a
line that a device has only once begins a new block, and its address stays unknown unless the command asked for one.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor import bdf
from gpudoctor.facts.base import Fact, Loss
from gpudoctor.facts.pci import PciDevice, PciTree
from gpudoctor.parsers.lspci_block import HANDLERS, Block
from gpudoctor.parsers.lspci_head import bare_address, head_of
from gpudoctor.pattern import lazy
from gpudoctor.read.section import Line, Section

_QUOTED = lazy(r"\b(LnkSta|LnkCap2?|LnkCtl|ACSC(?:tl|ap)):\s*(.*)$")
_ADDRESS = lazy(r":[0-9a-fA-F]{2}\.[0-7](?:\s|[:=#*>-]|$)")
_LISTED = lazy(rf"^\s*{bdf.PATTERN}[\s:=]{{1,6}}(?:Lnk(?:Sta|Cap2?|Ctl)|ACSCtl):")  # a script's listing, a register a line
_NAMED = lazy(rf"^\W{{0,8}}(?:(?:GPU|[Dd]evice|[Cc]ard|BDF|[Ss]lot|[Pp]ort|[Bb]ridge)\s{{1,4}})?({bdf.PATTERN})[\s:=*]{{0,8}}$")
_TERMINAL = 70  # columns from which a line may have been broken by a terminal of 80
# `lspci -vvv -s 41:00.0 | grep LnkSta`: the device whose lines these are. Of a slot's functions the first is printed first.
_ASKED = lazy(rf"\blspci\b[^|;&>]{{0,80}}?\s-[A-Za-z]*s\s{{0,4}}[\"']?({bdf.PATTERN})(?![\w:.])")
_KEYWORD = lazy(r"^(?:[A-Z!][\w ]{1,40}[:=]|[A-Z]\w+[+-](?:\s|$))")


def parse(section: Section) -> Iterator[Fact | Loss]:
    blocks = _blocks(section)
    if section.command and blocks and all(block.head is None for block in blocks):
        asked = _ASKED.search(section.command)
        if asked is not None:
            blocks[0].values["bdf"] = bdf.normalise(asked[1])
    last = section.lines[-1] if section.lines else None
    cut = last is not None and last.cut
    complete = _unfiltered(section) and not cut and not _elided(section)
    if not section.live:
        # People echo the command and paste a part: the whole bus has its root bus in it.
        complete = complete and any(b.head is not None and b.head.bdf.startswith("0000:00:") for b in blocks)
    devices = tuple(_devices(section, blocks, complete))
    if devices:
        yield PciTree(devices, complete)
        if cut and last is not None:
            yield Loss("the end of the lspci output", f"{section.source} breaks off in line {last.number}")


def _blocks(section: Section) -> list[Block]:
    blocks: list[Block] = []
    current: Block | None = None
    above: tuple[str, Line] | None = None  # an address alone on the line above
    for line in _unwrapped(section):
        text = line.text
        words = text.split(None, 1)
        if not words:
            continue
        word = words[0]
        if word in HANDLERS:
            rest = words[1] if len(words) > 1 else ""
        elif "Lnk" in text or "ACSC" in text:
            # Quoted in a sentence, or marked bold.
            quoted = _QUOTED.search(text)
            if not quoted:
                continue
            word, rest = quoted[1] + ":", quoted[2]
            # A script's listing: the address and one register of it in a line.
            named = _NAMED.match(text[: quoted.start()])
            address = bdf.normalise(named[1]) if named else None
            above = (address, line) if address is not None else above
        elif _ADDRESS.search(text):
            head = head_of(line)
            if head is not None:
                if current is not None:
                    current.closed = True
                blocks.append(current := Block(head, line))
                above = None
            else:
                address = bare_address(line)
                above = (address, line) if address is not None else None
            continue
        else:
            continue
        if above is not None:
            blocks.append(current := Block(None, None))
            current.values["bdf"], current.at["bdf"] = above
            above = None
        elif current is None or not current.takes(word):
            blocks.append(current := Block(None, None))
        current.feed(word, rest, line)
    return blocks


def _unwrapped(section: Section) -> Iterator[Line]:
    """Join lines that a terminal broke at its right edge: their rest stands at the left edge, under no known word.

    Joined without a space: a break within a word is made whole, and one at a space leaves a text that no pattern
    reads, so a value can be lost but not changed.
    """
    held: Line | None = None
    indented = False
    for line in section:
        text = line.text
        if text[:1] in ("\t", " "):
            indented = True
        elif (
            indented
            and held is not None
            and text
            and not held.cut
            and len(held.text.expandtabs()) >= _TERMINAL
            and not _KEYWORD.match(text)
            and head_of(line) is None
            and bare_address(line) is None
            and not _LISTED.match(text)
        ):
            held = Line(held.number, held.text + text, line.cut)
            continue
        if held is not None:
            yield held
        held = line
    if held is not None:
        yield held


def _unfiltered(section: Section) -> bool:
    """Was the whole bus asked for? Unknown commands count as filtered, so absence proves nothing."""
    command = section.command
    if command is None or any(c in command for c in "|;&>"):
        return False
    words = [w for w in command.split() if w != "sudo"]
    if not words or words[0].rpartition("/")[2] != "lspci":
        return False
    return all(w.startswith("-") and not w.startswith("--") and not set(w) & set("sdt") for w in words[1:])


def _elided(section: Section) -> bool:
    return any(line.text.strip().strip("[(<>)]") in ("...", "..", "snip", "…") for line in section)


def _devices(section: Section, blocks: list[Block], complete: bool) -> Iterator[PciDevice]:
    below: dict[str, Block] = {}  # "dddd:bb" of a bridge's lower side
    for block in blocks:
        if block.head is not None and block.secondary is not None:
            below.setdefault(f"{block.head.bdf[:-8]}:{block.secondary}", block)
    # Only a listing with bridge windows (-v) can say that no bridge leads to a bus.
    mapped = complete and bool(below)
    for block in blocks:
        parent, known, line = None, None, None
        if block.head is not None:
            bus = block.head.bdf[:-5]
            above = below.get(bus)
            if above is not None and above is not block and above.head is not None:
                parent, known, line = above.head.bdf, True, above.at["secondary"]
            elif bus.endswith(":00") or mapped:
                known = True  # bus 0 is a root bus by definition
        device = block.device(section, parent, known, line)
        if device is not None:
            yield device
