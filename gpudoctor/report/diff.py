"""A comparison to what a person reads, and to the `diff` key of the JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gpudoctor
from gpudoctor.diff.model import BETTER, NODES, SIDES, WORSE, Change, Comparison, Side
from gpudoctor.model import NOTE, WARNING
from gpudoctor.report.layout import MARK, Style, counted, hanging, justified, labelled, listed

MAX_EFFECTS = 6
MAX_MISSING = 12
_PLAIN = 200  # of a value in evidence


def verdict_of(comparison: Comparison) -> tuple[str, int]:
    """Something changed beats what had to be told and could not; both beat `nothing changed`."""
    if comparison.changes:
        return "fail", 1
    return ("unknown", 3) if any(m.needed for m in comparison.missing) else ("pass", 0)


def render(
    comparison: Comparison, a: Side, b: Side, seconds: float, notes: Iterable[str] = (), verbose: int = 0, colour: bool = False, unicode: bool = True
) -> str:
    """The whole page. Same words with and without colour; 80 columns."""
    style = Style(colour=colour, unicode=unicode)
    head = _head(comparison, a, b, seconds, style)
    for note in notes:
        head += hanging("Note: ", "      ", note, style)
    parts = [head, _verdict(comparison, style)]
    loud = [c for c in comparison.changes if c.severity != NOTE]
    quiet = [c for c in comparison.changes if c.severity == NOTE]
    nodes = comparison.mode == NODES
    parts += [_block(c, nodes, style, verbose) for c in loud]
    parts += [_block(c, nodes, style, verbose) for c in quiet] if verbose else [_short(quiet, style)]
    parts.append(_not_compared(comparison, style, verbose))
    if verbose:
        parts.append(_varying(comparison.varying, style))
        parts.append(hanging("Compared: ", "  ", ", ".join(comparison.compared) or "nothing", style))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def verdict_line(comparison: Comparison) -> str:
    """One line, as for -q and beside -o."""
    return " ".join(" ".join(_verdict(comparison, Style(unicode=False, width=10_000))).split())


def _head(comparison: Comparison, a: Side, b: Side, seconds: float, style: Style) -> list[str]:
    words = [f"gpudoctor {gpudoctor.__version__}", "two nodes" if comparison.mode == NODES else "one host over time"]
    if seconds:
        words.append(f"{seconds:.1f} s")
    lines = hanging("", "  ", listed(words, style), style)
    for name, side in zip(SIDES, (a, b), strict=True):
        hosts = ", ".join(s.host for s in side.stores[:3] if s.host)
        lines += hanging(f"  {name}  ", " " * 5, listed([side.path, *filter(None, [hosts, side.captured_at])], style), style)
    return lines


def _verdict(comparison: Comparison, style: Style) -> list[str]:
    verdict, _ = verdict_of(comparison)
    nodes = comparison.mode == NODES
    nothing = "No difference" if nodes else "Nothing changed"
    if verdict == "fail":
        worse = sum(c.direction == WORSE for c in comparison.changes)
        better = sum(c.direction == BETTER for c in comparison.changes)
        kinds_of = ("difference", "where B is worse", "where B is better") if nodes else ("change", "for the worse", "for the better")
        count = [counted(len(comparison.changes), kinds_of[0]), *([f"{worse} {kinds_of[1]}"] if worse else []), *([f"{better} {kinds_of[2]}"] if better else [])]
        word, text = "DIFFER" if nodes else "CHANGED", f"{_sentence(_first(_said(comparison.changes[0])))} {', '.join(count)}."
        role = "fail" if any(c.direction == WORSE and c.severity != NOTE for c in comparison.changes) else "unknown" if not better or worse else "pass"
    elif verdict == "unknown":
        first = next(m for m in comparison.missing if m.needed)
        what = f"{nothing} in what could be compared" if comparison.compared else "Nothing could be compared"
        word, text, role = "UNKNOWN", f"{what}. Could not tell: {_sentence(f'{first.fact}: {first.reason}')}", "unknown"
    else:
        kinds = f"{len(comparison.compared)} kinds of facts compared"
        word, role = "SAME", "pass"
        text = f"The two are one recording; {kinds}." if comparison.same else f"{nothing}; {kinds}."
    lines = hanging(f"{word:<9}", " " * 9, text, style)
    return [style.paint(lines[0][: len(word)], role) + lines[0][len(word) :], *lines[1:]]


def _block(change: Change, nodes: bool, style: Style, verbose: int) -> list[str]:
    where = _subject(change)
    mark = "✓" if change.direction == BETTER else MARK[change.severity]
    how = f"{change.direction} on B" if nodes and change.direction in (WORSE, BETTER) else "different" if nodes else change.direction
    line = style.plain(justified(f"{mark} {change.slug or change.kind}   {where}", how, style))
    lines = [style.paint(line, change.severity if change.direction != BETTER else "pass")]
    lines += labelled("What", _sentence(_said(change)), style)
    place = 0
    for side, spot in change.evidence[: None if verbose else 4]:
        text = f"{side}: {', '.join(filter(None, (spot.source, spot.where)))}: {spot.value[:_PLAIN]}"
        lines += labelled("Seen" if place == 0 else "", " ".join(text.split()), style)
        place += 1
    also = [_sentence(_said(e)) for e in change.effects] if verbose else _alike(change.effects)
    for number, text in enumerate(also[: None if verbose else MAX_EFFECTS]):
        lines += labelled("Also" if number == 0 else "", text, style)
    if len(also) > MAX_EFFECTS and not verbose:
        lines += labelled("", f"and {len(also) - MAX_EFFECTS} more (-v)", style)
    return lines


def _alike(effects: Iterable[Change]) -> list[str]:
    """One line for what changed in the same way: `Pair 0-5: NV18 -> NV17, and 6 more so.`"""
    groups: dict[tuple[str | None, ...], list[Change]] = {}
    for effect in effects:
        key = (effect.kind, effect.slug, effect.direction, effect.before, effect.after, effect.message if effect.subject == "host" else None)
        groups.setdefault(key, []).append(effect)
    out = []
    for found in groups.values():
        text = _first(_said(found[0])).rstrip(".")
        out.append(f"{text}, and {len(found) - 1} more so." if len(found) > 1 else f"{text}.")
    return out


def _short(changes: list[Change], style: Style) -> list[str]:
    if not changes:
        return []
    lines = [style.paint("Also different", "bold") + " (-v shows where it was read)"]
    for change in changes:
        more = f" (and {counted(len(change.effects), 'more change')} of it)" if change.effects else ""
        host = f" on {change.host}" if change.host else ""
        lines += hanging(f"  {style.plain(MARK[NOTE])} ", "    ", f"{_first(_said(change)).rstrip('.')}{host}{more}", style)
    return lines


def _not_compared(comparison: Comparison, style: Style, verbose: int) -> list[str]:
    if not comparison.missing:
        return []
    lines = [style.paint("Could not compare", "bold")]
    most = len(comparison.missing) if verbose else MAX_MISSING
    for missing in comparison.missing[:most]:
        lines += hanging(f"  {style.plain(MARK[WARNING])} ", "    ", f"{missing.fact}: {missing.reason}", style)
    if len(comparison.missing) > most:
        lines.append(f"    and {len(comparison.missing) - most} more (-v)")
    return lines


def _varying(changes: Iterable[Change], style: Style) -> list[str]:
    lines = []
    for change in tuple(changes)[:200]:
        lines += hanging(f"  {style.plain(MARK[NOTE])} ", "    ", change.message, style)
    return [style.paint("Expected to vary, so no change", "bold"), *lines] if lines else []


def _subject(change: Change) -> str:
    shown = change.subject.replace(":", " ", 1)
    alike = sum(e.kind == change.kind and e.slug == change.slug for e in change.effects)
    return shown + (f" and {alike} more" if alike else "") + (f" on {change.host}" if change.host else "")


def _first(text: str) -> str:
    """The first sentence."""
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]


def _said(change: Change) -> str:
    """A sentence begins with a capital, a name does not: a slug, a module, a file."""
    word = change.message.split(" ", 1)[0]
    named = change.kind in ("finding", "software", "setting") or not word.isalpha() or not word.islower()
    return change.message if named else change.message[:1].upper() + change.message[1:]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


def as_json(comparison: Comparison, a: Side, b: Side) -> dict[str, Any]:
    """The command's own key."""
    return {
        "mode": comparison.mode,
        "mode_reason": comparison.why_mode,
        "same_recording": comparison.same,
        **{name.lower(): {"path": s.path, "hosts": [x.host for x in s.stores], "captured_at": s.captured_at, "report": s.saved} for name, s in zip(SIDES, (a, b), strict=True)},
        "changes": [_change(c) for c in comparison.changes],
        "varying": [{"kind": c.kind, "subject": c.subject, "message": c.message} for c in comparison.varying],
        "compared": list(comparison.compared),
    }  # fmt: skip


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "subject": change.subject,
        "severity": change.severity,
        "direction": change.direction,
        "message": change.message,
        "before": change.before,
        "after": change.after,
        **({"slug": change.slug} if change.slug else {}),
        **({"host": change.host} if change.host else {}),
        "evidence": [{"side": side, "source": e.source, "where": e.where, "value": e.value} for side, e in change.evidence],
        "effects": [
            {"kind": e.kind, "subject": e.subject, "direction": e.direction, "message": e.message, **({"slug": e.slug} if e.slug else {})}
            for e in change.effects
        ],
    }
