"""A network as a picture: boxes and arrows with rates, loads and drops, written as SVG or PNG."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from floodway.errors import InputError
from floodway.network.fair import FairResult
from floodway.network.flow import Keeps, Rates
from floodway.network.layering import Size, Spacing
from floodway.network.layout import Layout, Rectangle, lay_out
from floodway.network.model import Arc, Network, OperatorKind
from floodway.network.text import number, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 16.0
TITLE = 26.0
FOOTER_LINE = 11.0
BADGE: Size = (46.0, 12.0)

INK = "#1f2d3d"
FAINT = "#5d6d7e"
ARROW = "#6b7c8f"
RED = "#c0392b"
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
        label = 0.0
        if self.result is not None:
            label = max(text_width(_rate(rate), 6.5) for rate in self.result.arc.values()) + 8
        return Spacing(label=label, mark=BADGE[0] + 8, marked=marked, port=14.0 if marked else 11.0)

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

    def paint(self, axes: Axes, layout: Layout, footer: list[str]) -> None:
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
        _rounded(axes, place, COLOURS["overload" if over else "node"], radius=6)
        middle = place.y + 13
        axes.text(
            place.x + 9, middle, shorten(node, 14), fontsize=9, fontweight="bold", color=INK, va="center"
        )
        right = place.x + place.width - 9
        if share is None:
            text = f"cpu {number(cpu)}"
            axes.text(right, middle, text, fontsize=6.5, color=FAINT, va="center", ha="right")
            return
        colour = RED if over else GREEN
        text = f"{share:.0%}"
        axes.text(right, middle, text, fontsize=7.5, fontweight="bold", color=colour, va="center", ha="right")
        bar = Rectangle(right - text_width(text, 7.5) * 1.15 - 6 - 34, middle - 3, 34, 6)
        _rounded(axes, bar, ("#dde4ec", "#dde4ec"), radius=2)
        if share > 0:
            filled = Rectangle(bar.x, bar.y, max(bar.width * min(share, 1.0), 4.0), bar.height)
            _rounded(axes, filled, (colour, colour), radius=2)

    def _box(self, axes: Axes, name: str, place: Rectangle) -> None:
        kind = "stream" if name in self.network.streams else "output"
        kind = "operator" if name in self.network.operators else kind
        if kind == "stream" and self._streams_cut:
            middle, end = place.y + place.height / 2, place.x + place.width
            place = Rectangle(place.x, place.y, place.width - BADGE[0] - 4, place.height)
            if name in self.keeps:
                axes.plot([place.x + place.width, end], [middle, middle], color=ARROW, lw=1.1, zorder=1)
                _badge(axes, Rectangle(end - BADGE[0], middle - BADGE[1] / 2, *BADGE), self.keeps[name])
        radius = 3.0 if kind == "operator" else place.height / 2 - 0.5
        _rounded(axes, place, COLOURS[kind], radius=min(radius, 11.0), line=1.1)
        title, lines = self.lines(name)
        centre, middle = place.x + place.width / 2, place.y + place.height / 2
        top = middle - 4.75 * len(lines)
        axes.text(centre, top, title, fontsize=8.5, fontweight="bold", color=INK, va="center", ha="center")
        for index, line in enumerate(lines, start=1):
            y = top + 9.5 * index + 0.5
            axes.text(centre, y, line, fontsize=6.5, color=FAINT, va="center", ha="center")

    def _start(
        self, arc: Arc, port: tuple[float, float], source: Rectangle
    ) -> tuple[tuple[float, float], ...]:
        """Arrows of a cut stream leave its mark; beside such marks, other streams' arrows go further."""
        if arc.producer in self.network.streams and self._streams_cut:
            if arc.producer in self.keeps:
                return ((port[0], source.y + source.height / 2),)
            return (port[0] - BADGE[0] - 4, port[1]), port
        return (port,)

    def _arrow(self, axes: Axes, arc: Arc, points: list[tuple[float, float]]) -> None:
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path as Curve
        from matplotlib.patheffects import withStroke

        keep = self.keeps.get(str(arc))
        start_x, start_y = points[0]
        end_x, end_y = points[-1]
        label = self.spacing.label
        vertices, codes = [(start_x, start_y)], [Curve.MOVETO]
        if keep is not None:
            # The arrow runs straight through its drop's mark before it turns.
            points = [points[0], (start_x + BADGE[0] + 8, start_y), *points[1:]]
            vertices.append(points[1])
            codes.append(Curve.LINETO)
            points = points[1:]
        # The last stretch is straight as well: the rate is written over it.
        points = [*points[:-1], (end_x - label - 4, end_y)]
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            bend = (x1 - x0) / 2 if x1 > x0 else (x0 - x1) / 2 + 20
            vertices += [(x0 + bend, y0), (x1 - bend, y1), (x1, y1)]
            codes += [Curve.CURVE4] * 3
        vertices.append((end_x - 0.5, end_y))
        codes.append(Curve.LINETO)
        idle = self.result is not None and self.result.arc[arc] == 0
        patch = FancyArrowPatch(
            path=Curve(vertices, codes),
            arrowstyle="-|>,head_length=3.6,head_width=2",
            color="#c9d2dc" if idle else ARROW,
            linewidth=1.1,
            joinstyle="round",
        )
        axes.add_patch(patch)
        if self.result is not None:
            text = axes.text(
                end_x - 7,
                end_y - 1.5,
                _rate(self.result.arc[arc]),
                fontsize=6.5,
                color=INK,
                va="bottom",
                ha="right",
            )
            text.set_path_effects([withStroke(linewidth=1.8, foreground="white")])
        if keep is not None:
            _badge(axes, Rectangle(start_x + 4, start_y - BADGE[1] / 2, *BADGE), keep)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """How wide a text is, in points."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0


def shorten(name: str, most: int = 22) -> str:
    """A name that fits its box.

    >>> shorten("a-very-long-operator-name-indeed")
    'a-very-long-operator-…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def _rate(rate: float) -> str:
    return f"{number(rate)}/s"


def _down(place: Rectangle) -> Rectangle:
    return Rectangle(place.x, place.y + TITLE, place.width, place.height)


def _rounded(
    axes: Axes, place: Rectangle, colours: tuple[str, str], *, radius: float, line: float = 0.9
) -> None:
    from matplotlib.patches import FancyBboxPatch

    fill, edge = colours
    style = f"round,pad=0,rounding_size={radius}"
    corner = (place.x, place.y)
    axes.add_patch(
        FancyBboxPatch(
            corner, place.width, place.height, style, facecolor=fill, edgecolor=edge, linewidth=line
        )
    )


def _badge(axes: Axes, place: Rectangle, keep: float) -> None:
    """The red mark of a drop, with the share that it keeps."""
    _rounded(axes, place, (RED, RED), radius=4)
    x, y = place.x + place.width / 2, place.y + place.height / 2
    text = f"keep {keep:.3g}" if 0 < keep < 0.001 else f"keep {keep * 100:.3g}%"
    axes.text(x, y, text, fontsize=6.3, fontweight="bold", color="white", va="center", ha="center")
