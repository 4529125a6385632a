"""Panels as lines of text: a histogram a rule, the limit in it, and the texts next to it."""

from collections.abc import Callable

import numpy as np

from pipeline.inspection.panels import Inspection, Neighbour, Panel, place_of

Paint = Callable[[str, str], str]
"""(escape code, text) -> text in that colour, or as it is where there is none."""

_BLOCKS = " ▁▂▃▄▅▆▇█"
_RED, _GREEN, _BOLD, _DIM, _END = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def number(value: float) -> str:
    """Four digits that matter, thousands parted."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def draw(inspection: Inspection, *, width: int, colour: bool, every_rule: bool) -> str:
    """The whole report; `every_rule` also shows rules without a limit."""
    paint = _painter(colour)
    n = inspection.num_documents
    lines = [
        paint(_BOLD, f"{n:,} documents, {inspection.num_kept:,} kept, {n - inspection.num_kept:,} dropped")
        + f" ({_percent(n - inspection.num_kept, n)})",
        "languages: " + ", ".join(f"{code} {count:,}" for code, count in inspection.languages),
        *(f"  {count:>8,}  {_percent(count, n):>8}  {reason}" for reason, count in inspection.reasons),
        "",
        paint(_DIM, "A bar is the logarithm of a count, so that tails show; │ is the limit."),
        "",
    ]
    for panel in inspection.panels:
        if panel.limit is not None or every_rule:
            lines += [*_panel(panel, width, paint), ""]
    return "\n".join(lines)


def _painter(colour: bool) -> Paint:
    return (lambda code, text: f"{code}{text}{_END}") if colour else (lambda _, text: text)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def _panel(panel: Panel, width: int, paint: Paint) -> list[str]:
    limit = "no limit" if panel.limit is None else f"{panel.setting} {number(panel.limit)}"
    least, low, median, high, most = map(number, panel.quantiles)
    head = paint(_BOLD, f"{panel.entry}.{panel.reason}") + f"   {limit}"
    counts = (
        f"  judged {panel.num_judged:,}, fail {panel.num_failed:,} ({_percent(panel.num_failed, panel.num_judged)}),"
        f" the reason for {panel.num_first:,};  least {least}, 1 % {low}, median {median}, 99 % {high}, most {most}"
    )
    left, right = number(float(panel.edges[0])), number(float(panel.edges[-1]))
    scale = " (logarithmic)" if panel.is_log else ""
    lines = [head, counts, f"  {left:>8} {_bars(panel, paint)} {right}{scale}"]
    for title, code, neighbours in (("dropped", _RED, panel.dropped), ("kept", _GREEN, panel.kept)):
        lines += [_neighbour(title, code, one, width, paint) for one in neighbours]
    return lines


def _bars(panel: Panel, paint: Paint) -> str:
    heights = np.log1p(panel.counts) / max(np.log1p(panel.counts.max(initial=0)), 1e-9)
    place = place_of(panel)
    at = None if place is None else min(round(place * len(heights)), len(heights))
    drawn = []
    for bin_number, height in enumerate(heights):
        if bin_number == at:
            drawn.append(paint(_BOLD, "│"))
        block = _BLOCKS[int(np.ceil(height * 8))]
        dropped = panel.num_dropped_in_bin[bin_number] * 2 > panel.counts[bin_number]
        drawn.append(paint(_RED, block) if dropped else block)
    if at == len(heights):
        drawn.append(paint(_BOLD, "│"))
    return "".join(drawn)


def _neighbour(title: str, code: str, one: Neighbour, width: int, paint: Paint) -> str:
    start = f"  {title:<8} {number(one.value):>9}  "
    name = one.name if len(one.name) <= 30 else f"…{one.name[-29:]}"
    room = max(width - len(start) - len(name) - 4, 20)
    excerpt = one.excerpt if len(one.excerpt) <= room else one.excerpt[: room - 1] + "…"
    return paint(code, start) + paint(_DIM, name) + f"  {_printable(excerpt)}"


def _printable(text: str) -> str:
    """Without characters that would move a terminal's cursor."""
    return "".join(character if character.isprintable() else "·" for character in text)
