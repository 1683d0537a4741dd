"""A network as a picture: boxes and arrows with rates, loads and drops, written as SVG or PNG."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from floodway.errors import InputError
from floodway.network.fair import FairResult
from floodway.network.flow import Keeps, Rates
from floodway.network.layering import Size, Spacing
from floodway.network.model import Arc, Network, OperatorKind
from floodway.network.picture_layout import PictureLayout, Rectangle, lay_out
from floodway.network.shapes import (
    ARROW,
    BADGE,
    FAINT,
    INK,
    RED,
    arrow,
    badge,
    label,
    rounded,
    shorten,
    text_width,
)
from floodway.network.text import number, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 16.0
TITLE = 26.0
FOOTER_LINE = 11.0

GREEN = "#3f8f5f"
# Fill and edge of each thing drawn.
COLOURS = {
    "stream": ("#dbeafa", "#3b78b5"),
    "operator": ("#ffffff", "#51677f"),
    "output": ("#dff1e3", "#3d8b50"),
    "node": ("#f3f6fa", "#c3cedb"),
    "overload": ("#fdf2f0", "#e3a79f"),
}
SUFFIXES = (".svg", ".png")


def save_picture(
    network: Network,
    path: Path,
    *,
    rates: Rates | None = None,
    keeps: Keeps | None = None,
    result: FairResult | None = None,
) -> None:
    """Draw the network and write it to `path`; the ending says whether as SVG or PNG."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"--picture: {path} ends neither in .svg nor in .png", hint="Name it picture.svg or picture.png"
        )
    from matplotlib import rc_context

    figure = draw(network, rates=rates, keeps=keeps, result=result)
    try:
        # A fixed salt and no date: the same network gives the same bytes, so that pictures can be checked in.
        with rc_context({"svg.hashsalt": "floodway"}):
            metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
            figure.savefig(path, dpi=200, metadata=metadata)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"--picture: {path} cannot be written: {reason}", hint="Check the folder") from error


def draw(
    network: Network,
    *,
    rates: Rates | None = None,
    keeps: Keeps | None = None,
    result: FairResult | None = None,
) -> Figure:
    """Draw on a figure of its own; matplotlib's global state stays untouched."""
    from matplotlib.figure import Figure

    drawing = _Drawing(network, dict(rates or {}), dict(keeps or {}), result)
    layout = lay_out(network, drawing.size, drawing.spacing)
    footer = drawing.footer()
    width = max(layout.width, drawing.least_width()) + 2 * MARGIN
    height = layout.height + TITLE + FOOTER_LINE * len(footer) + 2 * MARGIN
    figure = Figure(figsize=(width / 72, height / 72), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, width - MARGIN)
    axes.set_ylim(height - MARGIN, -MARGIN)
    drawing.paint(axes, layout, footer)
    return figure


class _Drawing:
    """What to write where, for one network and what flows in it."""

    def __init__(
        self,
        network: Network,
        rates: Mapping[str, float],
        keeps: Mapping[str, float],
        result: FairResult | None,
    ) -> None:
        self.network = network
        self.rates = rates
        self.keeps = keeps
        self.result = result

    @cached_property
    def spacing(self) -> Spacing:
        """Room for rates only where rates are written, for marks only where arrows are cut."""
        marked = frozenset(arc.producer for arc in self.network.arcs if str(arc) in self.keeps)
        room = 0.0
        if self.result is not None:
            room = max(text_width(_rate(rate), 6.5) for rate in self.result.arc.values()) + 8
        return Spacing(label=room, mark=BADGE[0] + 8, marked=marked, port=14.0 if marked else 11.0)

    def size(self, name: str) -> Size:
        """The box of a stream, operator or output holds its lines and all its arrows side by side."""
        title, lines = self.lines(name)
        width = max([text_width(title, 8.5) * 1.08, *(text_width(line, 6.5) for line in lines)]) + 18
        arrows = max(sum(arc.producer == name for arc in self.network.arcs), self._inputs(name))
        height = max(18.0 + 9.5 * len(lines), arrows * self.spacing.port + 8)
        badge = BADGE[0] + 4 if name in self.network.streams and self._streams_cut else 0.0
        return max(width, 46.0) + badge, height

    @property
    def _streams_cut(self) -> bool:
        return any(name in self.keeps for name in self.network.streams)

    def _inputs(self, name: str) -> int:
        operator = self.network.operators.get(name)
        return len(operator.inputs) if operator else 1

    def lines(self, name: str) -> tuple[str, list[str]]:
        """The name in bold, and what is written below it."""
        network, shown = self.network, shorten(name)
        if name in network.streams:
            return shown, [_rate(self.rates[name])] if name in self.rates else []
        if name in network.outputs:
            output = network.outputs[name]
            lines = [_rate(self.result.throughput[name])] if self.result else []
            extra = [f"weight {number(output.weight)}"] if output.weight != 1 else []
            extra += [f"tier {output.tier}"] if any(out.tier for out in network.outputs.values()) else []
            return shown, [*lines, *([" · ".join(extra)] if extra else [])]
        operator = network.operators[name]
        selectivity = "?" if operator.selectivity is None else number(operator.selectivity)
        lines = [f"cost {seconds(operator.cost)} · sel {selectivity}"]
        if operator.kind is OperatorKind.JOIN and operator.windows:
            lines.insert(0, f"join {number(operator.windows[0])} × {number(operator.windows[1])}")
        elif operator.kind is not OperatorKind.MAP:
            lines.insert(0, operator.kind.value)
        return shown, lines

    def title(self) -> str:
        score = f"   score {number(self.result.score)}" if self.result else ""
        return f"{shorten(self.network.name, 60)}{score}"

    def least_width(self) -> float:
        return max([text_width(self.title(), 11) * 1.1, *(text_width(line, 6.5) for line in self.footer())])

    def footer(self) -> list[str]:
        """Limits that have no box: links and memory."""
        lines = []
        for link in self.network.links:
            text = f"link {link.source} → {link.target}: {number(link.bandwidth)} bytes/s"
            if self.result:
                offered = self.result.link_load[link.source, link.target]
                text += f", offered {number(offered)} ({offered / link.bandwidth:.0%})"
            lines.append(text)
        return lines

    def paint(self, axes: Axes, layout: PictureLayout, footer: list[str]) -> None:
        """Groups first, arrows over them, boxes and labels on top."""
        self._title(axes)
        for node, place in layout.groups.items():
            self._node(axes, node, _down(place))
        for arc, points in layout.routes.items():
            start = self._start(arc, points[0], layout.boxes[arc.producer])
            self._arrow(axes, arc, [(x, y + TITLE) for x, y in (*start, *points[1:])])
        for name, place in layout.boxes.items():
            self._box(axes, name, _down(place))
        for index, line in enumerate(footer):
            y = TITLE + layout.height + 12 + FOOTER_LINE * index
            axes.text(0, y, line, fontsize=6.5, color=FAINT, va="center")

    def _title(self, axes: Axes) -> None:
        axes.text(0, 4, self.title(), fontsize=11, fontweight="bold", color=INK, va="center")

    def _node(self, axes: Axes, node: str, place: Rectangle) -> None:
        cpu = self.network.nodes[node].cpu
        share = self.result.load[node] / cpu if self.result else None
        over = share is not None and share > 1 + 1e-9
        rounded(axes, place, COLOURS["overload" if over else "node"], radius=6)
        middle = place.y + 13
        axes.text(place.x + 9, middle, shorten(node, 14), fontsize=9, fontweight="bold", color=INK, va="center")
        right = place.x + place.width - 9
        if share is None:
            text = f"cpu {number(cpu)}"
            axes.text(right, middle, text, fontsize=6.5, color=FAINT, va="center", ha="right")
            return
        colour = RED if over else GREEN
        text = f"{share:.0%}"
        axes.text(right, middle, text, fontsize=7.5, fontweight="bold", color=colour, va="center", ha="right")
        bar = Rectangle(right - text_width(text, 7.5) * 1.15 - 6 - 34, middle - 3, 34, 6)
        rounded(axes, bar, ("#dde4ec", "#dde4ec"), radius=2)
        if share > 0:
            filled = Rectangle(bar.x, bar.y, max(bar.width * min(share, 1.0), 4.0), bar.height)
            rounded(axes, filled, (colour, colour), radius=2)

    def _box(self, axes: Axes, name: str, place: Rectangle) -> None:
        kind = "stream" if name in self.network.streams else "output"
        kind = "operator" if name in self.network.operators else kind
        if kind == "stream" and self._streams_cut:
            middle, end = place.y + place.height / 2, place.x + place.width
            place = Rectangle(place.x, place.y, place.width - BADGE[0] - 4, place.height)
            if name in self.keeps:
                axes.plot([place.x + place.width, end], [middle, middle], color=ARROW, lw=1.1, zorder=1)
                badge(axes, Rectangle(end - BADGE[0], middle - BADGE[1] / 2, *BADGE), self.keeps[name])
        radius = 3.0 if kind == "operator" else place.height / 2 - 0.5
        rounded(axes, place, COLOURS[kind], radius=min(radius, 11.0), line=1.1)
        title, lines = self.lines(name)
        centre, middle = place.x + place.width / 2, place.y + place.height / 2
        top = middle - 4.75 * len(lines)
        axes.text(centre, top, title, fontsize=8.5, fontweight="bold", color=INK, va="center", ha="center")
        for index, line in enumerate(lines, start=1):
            y = top + 9.5 * index + 0.5
            axes.text(centre, y, line, fontsize=6.5, color=FAINT, va="center", ha="center")

    def _start(self, arc: Arc, port: tuple[float, float], source: Rectangle) -> tuple[tuple[float, float], ...]:
        """Arrows of a cut stream leave its mark; beside such marks, other streams' arrows go further."""
        if arc.producer in self.network.streams and self._streams_cut:
            if arc.producer in self.keeps:
                return ((port[0], source.y + source.height / 2),)
            return (port[0] - BADGE[0] - 4, port[1]), port
        return (port,)

    def _arrow(self, axes: Axes, arc: Arc, points: list[tuple[float, float]]) -> None:
        keep = self.keeps.get(str(arc))
        lead = BADGE[0] + 8 if keep is not None else 0.0
        idle = self.result is not None and self.result.arc[arc] == 0
        # Straight through a drop's mark at its start, and at its end, where the rate is written over it.
        arrow(axes, points, lead=lead, tail=self.spacing.label + 4, colour="#c9d2dc" if idle else ARROW)
        if self.result is not None:
            label(axes, points[-1][0] - 7, points[-1][1] - 1.5, _rate(self.result.arc[arc]))
        if keep is not None:
            x, y = points[0]
            badge(axes, Rectangle(x + 4, y - BADGE[1] / 2, *BADGE), keep)


def _rate(rate: float) -> str:
    return f"{number(rate)}/s"


def _down(place: Rectangle) -> Rectangle:
    return Rectangle(place.x, place.y + TITLE, place.width, place.height)
