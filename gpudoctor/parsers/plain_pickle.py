"""A pickle to plain data, by a machine that knows no other kind: nothing can be imported, called or built.

Python's own reader runs whatever a pickle asks for, and one that refuses every import can still be made to use all
memory, or to crash on values nested too deeply. This one keeps to the opcodes that numbers, texts, lists, tuples and
dicts with plain keys are written with, and to limits. The value may still be nested without end, or hold itself: who
walks it goes only as deep as the data's own form does.
"""

from __future__ import annotations

import struct
from typing import Any

MAX_STEPS = 10_000_000  # opcodes; a dump of 2,000 calls with deep stacks has under a million
MAX_CONTAINERS = 1_000_000
MAX_DIGITS = 400
MAX_TEXT = 1 << 20  # bytes of one text


class Refused(Exception):
    """A pickle that asks for more than plain data, or that is broken; the message says which."""


class _Mark:
    pass


_MARK = _Mark()
# What a pickle may not do, by opcode.
_FORBIDDEN = {
    ord("R"): "to call a function (REDUCE)",
    ord("b"): "to set the state of an object (BUILD)",
    ord("o"): "to build an object (OBJ)",
    0x81: "to build an object (NEWOBJ)",
    0x92: "to build an object (NEWOBJ_EX)",
    0x93: "for a function or class by name (STACK_GLOBAL)",
    0x82: "for an extension (EXT1)",
    0x83: "for an extension (EXT2)",
    0x84: "for an extension (EXT4)",
    ord("P"): "for an object outside the file (PERSID)",
    ord("Q"): "for an object outside the file (BINPERSID)",
    0x97: "for a buffer outside the file (NEXT_BUFFER)",
    0x98: "for a buffer outside the file (READONLY_BUFFER)",
}
_I2, _I4, _U4, _U8, _F8 = (struct.Struct(f) for f in ("<H", "<i", "<I", "<Q", ">d"))


def load(data: bytes) -> Any:
    """The value. Raises Refused for whatever is not plain data, is cut, or passes a limit; never anything else."""
    try:
        return _run(data)
    except (IndexError, struct.error) as error:
        raise Refused("it ends in the middle of a value") from error
    except (ValueError, TypeError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise Refused(f"it is damaged ({type(error).__name__})") from error


def _run(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    size = len(data)
    at = steps = containers = 0

    def take(count: int) -> bytes:
        nonlocal at
        if count < 0 or at + count > size:
            raise IndexError
        at += count
        return data[at - count : at]

    def text(count: int) -> str:
        if count > MAX_TEXT:
            raise Refused(f"a text of {count} bytes, more than {MAX_TEXT >> 20} MiB")
        return take(count).decode("utf-8", "surrogatepass")

    def line() -> bytes:
        nonlocal at
        end = data.index(b"\n", at, at + 4096)
        found = data[at:end]
        at = end + 1
        return found

    def number(digits: bytes) -> int:
        if len(digits) > MAX_DIGITS:
            raise Refused("a number of more than 400 digits")
        return int(digits.decode("ascii"))

    def little(count: int) -> int:
        if count > MAX_DIGITS:
            raise Refused("a number of more than 400 bytes")
        return int.from_bytes(take(count), "little", signed=True)

    def since_mark() -> list[Any]:
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is _MARK:
                found = stack[place + 1 :]
                del stack[place:]
                return found
        raise IndexError

    def put(target: Any, values: list[Any]) -> None:
        if not isinstance(target, list):
            raise TypeError
        target.extend(plain(values))

    def setitems(target: Any, values: list[Any]) -> None:
        if not isinstance(target, dict) or len(values) % 2:
            raise TypeError
        keys = values[::2]
        if not all(isinstance(k, (str, int, float, bool)) for k in keys):
            raise Refused("a key that is neither text nor number")
        target.update(zip(keys, plain(values[1::2]), strict=True))

    def plain(values: list[Any]) -> list[Any]:
        if any(value is _MARK for value in values):
            raise ValueError
        return values

    def made(container: Any) -> Any:
        nonlocal containers
        containers += 1
        if containers > MAX_CONTAINERS:
            raise Refused(f"more than {MAX_CONTAINERS} lists and dicts")
        return container

    while True:
        steps += 1
        if steps > MAX_STEPS:
            raise Refused(f"more than {MAX_STEPS} steps")
        op = data[at]
        at += 1
        # In the order of how often a dump has them.
        if op == 0x71:  # BINPUT
            memo[data[at]] = stack[-1]
            at += 1
        elif op == 0x68:  # BINGET
            stack.append(memo[data[at]])
            at += 1
        elif op == 0x72:  # LONG_BINPUT
            memo[_U4.unpack_from(data, at)[0]] = stack[-1]
            at += 4
        elif op == 0x6A:  # LONG_BINGET
            stack.append(memo[_U4.unpack_from(data, at)[0]])
            at += 4
        elif op == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif op == 0x58:  # BINUNICODE
            at += 4
            stack.append(text(_U4.unpack_from(data, at - 4)[0]))
        elif op == 0x8C:  # SHORT_BINUNICODE
            at += 1
            stack.append(text(data[at - 1]))
        elif op == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif op == 0x4D:  # BININT2
            stack.append(_I2.unpack_from(data, at)[0])
            at += 2
        elif op == 0x4A:  # BININT
            stack.append(_I4.unpack_from(data, at)[0])
            at += 4
        elif op == 0x8A:  # LONG1
            at += 1
            stack.append(little(data[at - 1]))
        elif op == 0x28:  # MARK
            stack.append(_MARK)
        elif op == 0x7D:  # EMPTY_DICT
            stack.append(made({}))
        elif op == 0x5D:  # EMPTY_LIST
            stack.append(made([]))
        elif op == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif op == 0x75:  # SETITEMS
            values = since_mark()
            setitems(stack[-1], values)
        elif op == 0x73:  # SETITEM
            value, key = stack.pop(), stack.pop()
            setitems(stack[-1], [key, value])
        elif op == 0x65:  # APPENDS
            values = since_mark()
            put(stack[-1], values)
        elif op == 0x61:  # APPEND
            value = stack.pop()
            put(stack[-1], [value])
        elif op in (0x85, 0x86, 0x87):  # TUPLE1 to TUPLE3
            count = op - 0x84
            if len(stack) < count:
                raise IndexError
            values = stack[-count:]
            del stack[-count:]
            stack.append(made(tuple(plain(values))))
        elif op == 0x74:  # TUPLE
            stack.append(made(tuple(plain(since_mark()))))
        elif op == 0x6C:  # LIST
            values = since_mark()
            stack.append(made([]))
            put(stack[-1], values)
        elif op == 0x64:  # DICT
            values = since_mark()
            stack.append(made({}))
            setitems(stack[-1], values)
        elif op == 0x4E:  # NONE
            stack.append(None)
        elif op == 0x88 or op == 0x89:  # NEWTRUE, NEWFALSE
            stack.append(op == 0x88)
        elif op == 0x47:  # BINFLOAT
            stack.append(_F8.unpack_from(data, at)[0])
            at += 8
        elif op == 0x80:  # PROTO
            if data[at] > 5:
                raise Refused(f"protocol {data[at]}, which does not exist")
            at += 1
        elif op == 0x95:  # FRAME: only a promise of how much follows
            at += 8
        elif op == 0x2E:  # STOP
            if len(stack) != 1 or stack[0] is _MARK:
                raise Refused("it is damaged (it ends with values left over)")
            return stack[0]
        elif op == 0x30:  # POP
            stack.pop()
        elif op == 0x31:  # POP_MARK
            since_mark()
        elif op == 0x32:  # DUP
            stack.append(stack[-1])
        elif op == 0x8B:  # LONG4
            at += 4
            stack.append(little(_I4.unpack_from(data, at - 4)[0]))
        elif op == 0x8D:  # BINUNICODE8
            at += 8
            stack.append(text(_U8.unpack_from(data, at - 8)[0]))
        elif op == 0x49:  # INT
            word = line()
            stack.append(word == b"01" if word in (b"00", b"01") else number(word))
        elif op == 0x4C:  # LONG
            stack.append(number(line().rstrip(b"L")))
        elif op == 0x46:  # FLOAT
            stack.append(float(line().decode("ascii")))
        elif op == 0x56:  # UNICODE
            stack.append(line().decode("raw-unicode-escape"))
        elif op == 0x53:  # STRING
            word = line()
            if len(word) < 2 or word[:1] not in (b"'", b'"') or word[:1] != word[-1:]:
                raise ValueError
            stack.append(word[1:-1].decode("utf-8", "replace"))
        elif op == 0x70:  # PUT
            memo[number(line())] = stack[-1]
        elif op == 0x67:  # GET
            stack.append(memo[number(line())])
        elif op == 0x63 or op == 0x69:  # GLOBAL, INST
            module, name = (w.decode("utf-8", "replace")[:60] for w in (line(), line()))
            raise Refused(f"it asks for {module}.{name}, which no dump of data needs")
        elif op in _FORBIDDEN:
            raise Refused(f"it asks {_named(op, stack)}, which no dump of data needs")
        else:
            raise Refused(f"it is damaged (unknown opcode 0x{op:02x} at byte {at - 1})")
        if op in (0x71, 0x72, 0x94, 0x70) and stack[-1] is _MARK:
            raise ValueError


def _named(op: int, stack: list[Any]) -> str:
    if op == 0x93 and len(stack) > 1 and all(isinstance(w, str) for w in stack[-2:]):
        return f"for {stack[-2][:60]}.{stack[-1][:60]}"
    return _FORBIDDEN[op]
