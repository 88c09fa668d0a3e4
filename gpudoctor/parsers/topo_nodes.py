"""The elements of NCCL's topology XML as a tree of nodes with their line numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from gpudoctor.bdf import normalise
from gpudoctor.facts.base import Loss
from gpudoctor.read.section import Section

MAX_NODES = 20_000  # a host has hundreds
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[a-z]\w{0,20})\b(?P<rest>(?:\"[^\"<]*\"|[^<>\"])*?)(?P<alone>/?)>")
_ELEMENT = re.compile(r'^\s*<(?:cpu|pci|gpu|nvlink|net) \w+="')
_KNOWN = frozenset({"cpu", "pci", "gpu", "nvlink", "c2c", "nic", "net"})


class Node:
    """One element. `closed` is False where the input ends inside it, so that more children may have followed."""

    def __init__(self, name: str, attributes: dict[str, str], parent: Node | None, line: int, text: str) -> None:
        self.name, self.parent, self.line, self.text = name, parent, line, text
        self._attributes = attributes
        self.children: list[Node] = []
        self.closed = False
        self.bdf = normalise(attributes.get("busid", "")) if name == "pci" else None
        # The nearest enclosing elements of these kinds, kept here: walking up would be quadratic in a deep file.
        self.pci: Node | None = None if parent is None else parent if parent.name == "pci" else parent.pci
        self.cpu: Node | None = None if parent is None else parent if parent.name == "cpu" else parent.cpu

    def get(self, name: str) -> str | None:
        return self._attributes.get(name)

    def ancestors(self, limit: int = 32) -> list[Node]:
        """PCI elements around this one, nearest first. No real tree is deeper than the limit."""
        out: list[Node] = []
        node = self.pci
        while node is not None and len(out) < limit:
            out.append(node)
            node = node.pci
        return out


class Tree:
    """The elements of a topology file."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []  # in the order of the file
        self.losses: list[Loss] = []

    def of(self, name: str) -> Iterator[Node]:
        return (node for node in self.nodes if node.name == name)

    def only_host(self, host_hash: str | None) -> Tree:
        out = Tree()
        for node in self.nodes:
            cpu = node if node.name == "cpu" else node.cpu
            if cpu is not None and cpu.get("host_hash") == host_hash:
                out.nodes.append(node)
        return out


class _Builder:
    def __init__(self, section: Section, numbers: list[int], parser: Any) -> None:
        self.tree = Tree()
        self._section, self._numbers, self._parser = section, numbers, parser
        self._stack: list[Node | None] = []
        self._open: list[Node] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name not in _KNOWN or len(self.tree.nodes) >= MAX_NODES:
            self._stack.append(None)
            return
        at = self._parser.CurrentLineNumber - 1
        line = self._numbers[at] if at < len(self._numbers) else self._numbers[-1]
        shown = " ".join(f'{key}="{value}"' for key, value in attributes.items())
        node = Node(name, attributes, self._open[-1] if self._open else None, line, f"<{name} {shown}>")
        if node.parent is not None:
            node.parent.children.append(node)
        self.tree.nodes.append(node)
        self._stack.append(node)
        self._open.append(node)

    def end(self, name: str) -> None:
        node = self._stack.pop() if self._stack else None
        if node is not None:
            node.closed = True
            self._open.pop()


def without_comments(section: Section) -> list[str]:
    """The lines with comments blanked. NCCL skips to the next `-->`, so files hold comments that XML forbids (`--`)."""
    out: list[str] = []
    inside = False
    for line in section:
        text, kept = line.text, ""
        while text:
            mark = "-->" if inside else "<!--"
            before, found, text = text.partition(mark)
            if not inside:
                kept += before
            if found:
                inside = not inside
        out.append(kept)
    return out


def _whole(texts: list[str]) -> list[str]:
    """A piece from the middle of a file: tags that end what began above it are blanked, and one root is put around.

    What stands next to each other at the top then has no parent: what it hangs from was not quoted.
    """
    text = "\n".join(texts)
    opened: list[str] = []
    count: Counter[str] = Counter()  # of what is open: a search of the list would be quadratic in a hostile file
    out: list[str] = []
    at = 0
    for tag in _TAG.finditer(text):
        if tag["end"]:
            if count[tag["name"]]:
                while (closed := opened.pop()) != tag["name"]:
                    count[closed] -= 1
                count[closed] -= 1
            else:
                out += [text[at : tag.start()], " " * len(tag[0])]
                at = tag.end()
        elif not tag["alone"]:
            opened.append(tag["name"])
            count[tag["name"]] += 1
    lines = ("".join(out) + text[at:]).split("\n")
    lines[0] = f"<system>{lines[0]}"
    if not opened:
        lines[-1] += "</system>"
    return lines


def read(section: Section) -> Tree:
    """Everything up to the end or the first place that is no XML, which becomes a loss."""
    texts = without_comments(section)
    numbers = [line.number for line in section]
    start = next((place for place, text in enumerate(texts) if "<system" in text), None)
    if start is None:
        if not any(_ELEMENT.match(text) for text in texts):
            return Tree()
        start, texts = 0, _whole(texts)
    parser = expat.ParserCreate()
    builder = _Builder(section, numbers[start:], parser)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    text = "\n".join(texts[start:])
    try:
        # From the first element on: a document type, and with it every entity, stays unread.
        parser.Parse(text[text.index("<system") :], True)
    except expat.ExpatError as error:
        number = builder._numbers[min(error.lineno, len(numbers) - start) - 1]
        builder.tree.losses.append(Loss("the rest of NCCL's topology", f"cut or damaged at line {number} ({section.source})"))
    if len(builder.tree.nodes) >= MAX_NODES:
        builder.tree.losses.append(Loss("the rest of NCCL's topology", f"more than {MAX_NODES} elements ({section.source})"))
    return builder.tree
