"""Charts of a report as inline SVG: lines and stacked areas over seconds, coloured by the page's own style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520.0, 220.0, 56.0, 12.0, 12.0, 34.0
Scale = Callable[[float], str]
COLOURS = ("--c0", "--c1", "--c2", "--c3", "--c4", "--c5")


@dataclass(frozen=True, slots=True)
class Series:
    """One line or area: a value for every time, None where there is none; `dashed` for targets."""

    name: str
    values: Sequence[float | None]
    colour: str = COLOURS[0]
    dashed: bool = False
    area: bool = False


def chart(label: str, times: Sequence[float], series: Sequence[Series], *, unit: str) -> str:
    """An SVG with its legend; areas are stacked in the order given, lines drawn over them.

    >>> "waiting" in chart("Latency", [], [], unit="s")
    False
    >>> chart("Latency", [0.0, 1.0], [Series("mean", [1.0, 2.0])], unit="s").count("<path")
    1
    """
    if len(times) < 2:
        return f"<p>{escape(label)}: too little was measured to draw.</p>"
    stacked = _stacked(series)
    tops = [value for _, above, _ in stacked for value in above]
    tops += [value for one in series if not one.area for value in one.values if value is not None]
    tick = _tick(max(tops, default=1.0) or 1.0)
    top = math.ceil(max(tops, default=1.0) * 1.02 / tick) * tick or tick
    first, span = times[0], max(times[-1] - times[0], 1e-9)

    def x(time: float) -> str:
        return f"{LEFT + (time - first) / span * (WIDTH - LEFT - RIGHT):.1f}"

    def y(value: float) -> str:
        return f"{HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" width="100%" role="img" aria-label="{escape(label)} ({unit})">'
    ]
    for step in range(round(top / tick) + 1):
        level = y(step * tick)
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level}" y2="{level}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{float(level) + 4:.1f}" text-anchor="end">{_short(step * tick)}</text>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        place = LEFT + share * (WIDTH - LEFT - RIGHT)
        parts.append(f'<text x="{place}" y="{HEIGHT - 14}" text-anchor="{anchor}">{duration(span * share)}</text>')
    for one, above, below in stacked:
        up = " ".join(f"{x(time)},{y(value)}" for time, value in zip(times, above, strict=True))
        down = " ".join(f"{x(time)},{y(value)}" for time, value in reversed(list(zip(times, below, strict=True))))
        parts.append(f'<polygon points="{up} {down}" style="fill:var({one.colour});fill-opacity:.55"/>')
    for one in series:
        if not one.area:
            style = 'class="target"' if one.dashed else f'class="line" style="stroke:var({one.colour})"'
            parts.append(f'<path {style} d="{_path(times, one.values, x, y)}"/>')
    parts.append("</svg>")
    keys = "".join(
        f'<li><i style="background:var({"--ink" if one.dashed else one.colour})"></i>{escape(one.name)}</li>'
        for one in series
    )
    return f'<div class="chart">{"".join(parts)}</div><ul class="legend">{keys}</ul>'


def duration(seconds: float) -> str:
    """A length of time as people say it.

    >>> [duration(seconds) for seconds in (0, 90, 5400, 86_400, 604_800)]
    ['0 s', '90 s', '90 min', '24 h', '7 days']
    """
    for unit, length, most in (("s", 1, 600), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.3g} days"


def _stacked(series: Sequence[Series]) -> list[tuple[Series, list[float], list[float]]]:
    found: list[tuple[Series, list[float], list[float]]] = []
    for one in series:
        if one.area:
            below = found[-1][1] if found else [0.0] * len(one.values)
            above = [low + (value or 0.0) for low, value in zip(below, one.values, strict=True)]
            found.append((one, above, below))
    return found


def _path(times: Sequence[float], values: Sequence[float | None], x: Scale, y: Scale) -> str:
    text, pen = "", False
    for time, value in zip(times, values, strict=True):
        if value is not None:
            text += f"{'L' if pen else 'M'}{x(time)} {y(value)}"
        pen = value is not None
    return text


def _tick(most: float) -> float:
    raw = most / 4
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= raw)


def _short(value: float) -> str:
    """A number that fits beside the axis.

    >>> [_short(value) for value in (0.25, 1500.0, 250_000.0, 2_000_000.0)]
    ['0.25', '1,500', '250k', '2M']
    """
    if value >= 1e6:
        return f"{value / 1e6:.4g}M"
    if value >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
