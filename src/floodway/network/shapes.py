"""The shapes of a picture on matplotlib axes: rounded boxes, arrows, marks and texts. Units are points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from floodway.network.picture_layout import Rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

INK = "#1f2d3d"
FAINT = "#5d6d7e"
ARROW = "#6b7c8f"
RED = "#c0392b"
BADGE = (46.0, 12.0)
_CORNER = 6.0

Point = tuple[float, float]


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """How wide a text is."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0


def shorten(name: str, most: int = 22) -> str:
    """A name that fits its box.

    >>> shorten("a-very-long-operator-name-indeed")
    'a-very-long-operator-…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def rounded(axes: Axes, place: Rectangle, colours: tuple[str, str], *, radius: float, line: float = 0.9) -> None:
    """A box with round corners, in a colour for its inside and one for its edge."""
    from matplotlib.patches import FancyBboxPatch

    fill, edge = colours
    style = f"round,pad=0,rounding_size={radius}"
    corner = (place.x, place.y)
    axes.add_patch(
        FancyBboxPatch(corner, place.width, place.height, style, facecolor=fill, edgecolor=edge, linewidth=line)
    )


def badge(axes: Axes, place: Rectangle, keep: float) -> None:
    """The red mark of a drop, with the share that it keeps."""
    rounded(axes, place, (RED, RED), radius=4)
    x, y = place.x + place.width / 2, place.y + place.height / 2
    text = f"keep {keep:.3g}" if 0 < keep < 0.001 else f"keep {keep * 100:.3g}%"
    axes.text(x, y, text, fontsize=6.3, fontweight="bold", color="white", va="center", ha="center")


def label(axes: Axes, x: float, y: float, text: str) -> None:
    """A small text ending at x, above y, readable over lines."""
    from matplotlib.patheffects import withStroke

    written = axes.text(x, y, text, fontsize=6.5, color=INK, va="bottom", ha="right")
    written.set_path_effects([withStroke(linewidth=1.8, foreground="white")])


def arrow(axes: Axes, points: Sequence[Point], *, lead: float, tail: float, colour: str) -> None:
    """An arrow through points, straight for `lead` at its start and for `tail` at its end."""
    from matplotlib.patches import FancyArrowPatch

    runs_back = points[-1][0] <= points[0][0]
    path = _turning(points, lead) if runs_back else _flowing(points, lead, tail)
    style = "-|>,head_length=3.6,head_width=2"
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle=style, color=colour, linewidth=1.1, joinstyle="round"))


def _flowing(points: Sequence[Point], lead: float, tail: float) -> Path:
    """Smooth curves that leave and enter every point level."""
    from matplotlib.path import Path

    (start_x, start_y), (end_x, end_y) = points[0], points[-1]
    turns = [(start_x + lead, start_y), *points[1:-1], (end_x - tail, end_y)]
    vertices, codes = [points[0], turns[0]], [Path.MOVETO, Path.LINETO]
    for (x0, y0), (x1, y1) in pairwise(turns):
        bend = abs(x1 - x0) / 2
        vertices += [(x0 + bend, y0), (x1 - bend, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
    vertices.append((end_x - 0.5, end_y))
    codes.append(Path.LINETO)
    return Path(vertices, codes)


def _turning(points: Sequence[Point], lead: float) -> Path:
    """Level and upright stretches with round corners, for an arrow that runs back."""
    from matplotlib.path import Path

    first = max(points[1][0], points[0][0] + lead + _CORNER)
    route = [points[0], (first, points[1][1]), (first, points[2][1]), *points[3:]]
    vertices, codes = [route[0]], [Path.MOVETO]
    for before, corner, after in zip(route, route[1:], route[2:], strict=False):
        vertices += [_towards(corner, before), corner, _towards(corner, after)]
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    vertices.append((route[-1][0] - 0.5, route[-1][1]))
    codes.append(Path.LINETO)
    return Path(vertices, codes)


def _towards(corner: Point, other: Point) -> Point:
    """A point a little way from a corner, on a level or upright line to another."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    part = min(_CORNER, length / 2) / length if length else 0.0
    return corner[0] + dx * part, corner[1] + dy * part
