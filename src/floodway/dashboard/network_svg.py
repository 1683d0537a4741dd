"""A network as SVG for the page: the layout of `network/picture.py`, colours from CSS, figures filled in later.

Every figure is a text with a `data-` attribute that says what belongs there (`data-rate="s1"`, `data-keep="a1->b1"`,
`data-arc="a1->b1"`, `data-load="A"`), so that the page replaces texts and never draws anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from floodway.dashboard.gauge import Flow
from floodway.network.layering import Size, Spacing
from floodway.network.model import Network
from floodway.network.picture_layout import PictureLayout, Rectangle, lay_out
from floodway.network.shapes import shorten
from floodway.network.text import number, seconds

MARGIN = 14.0
LETTER = 0.6
"""Width of a letter over its size: wide enough for any of the page's fonts."""
NAME, SMALL = 12.0, 10.0
BADGE = 74.0
DASH = "–"


def network_svg(network: Network, figures: Flow | None = None) -> str:
    """The drawing, with figures where given."""
    marked = frozenset(at.split("->")[0] for at in network.drop_locations if "->" in at)
    spacing = Spacing(
        label=62.0, mark=BADGE + 8, port=20.0, marked=marked, header=28.0, gap=30.0, item=18.0, block=18.0
    )
    layout = lay_out(network, lambda name: _size(network, name), spacing)
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="network" role="img" '
        f'aria-label="{escape(_words(network))}" viewBox="{-MARGIN:g} {-MARGIN:g} {width:.1f} {height:.1f}" '
        f'width="{width:.0f}" height="{height:.0f}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
        *(_node(network, name, place, figures) for name, place in layout.groups.items()),
        *_arrows(network, layout, figures),
        *(_box(network, name, place, figures) for name, place in layout.boxes.items()),
        "</svg>",
    ]
    return "\n".join(parts)


def _words(network: Network) -> str:
    return (
        f"Network {network.name}: {len(network.streams)} streams, {len(network.operators)} operators on "
        f"{len(network.nodes)} nodes, {len(network.outputs)} outputs"
    )


def _size(network: Network, name: str) -> Size:
    lines = _lines(network, name)
    width = max(len(shorten(name)) * NAME * LETTER, *(len(line) * SMALL * LETTER for line in [*lines, "1234567/s"]))
    arrows = max(sum(arc.producer == name for arc in network.arcs), sum(arc.consumer == name for arc in network.arcs))
    return max(width + 22, 86.0), max(24.0 + 14.0 * (len(lines) + 1), arrows * 20.0 + 8)


def _lines(network: Network, name: str) -> list[str]:
    if name in network.streams:
        return ["keep 100%"]
    if name in network.outputs:
        return [f"weight {number(network.outputs[name].weight)}"]
    return [f"{seconds(network.operators[name].cost)} per tuple"]


def _node(network: Network, name: str, place: Rectangle, figures: Flow | None) -> str:
    share = figures.load[name] if figures else None
    over = " over" if share is not None and share > 1.005 else ""
    x, y = place.x, place.y
    return (
        f'<g class="node{over}" data-node="{escape(name)}"><rect x="{x:.1f}" y="{y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="8"/>'
        f'<text class="name" x="{x + 10:.1f}" y="{y + 18:.1f}">{escape(shorten(name, 14))}</text>'
        f'<text class="load" data-load="{escape(name)}" x="{x + place.width - 10:.1f}" y="{y + 18:.1f}">'
        f"{DASH if share is None else f'{share:.0%}'}</text></g>"
    )


def _box(network: Network, name: str, place: Rectangle, figures: Flow | None) -> str:
    kind = "stream" if name in network.streams else "output" if name in network.outputs else "operator"
    centre, top = place.x + place.width / 2, place.y + place.height / 2
    lines = [_figure(network, name, figures), *_static(network, name)]
    if kind == "stream":
        keep = figures.keeps.get(name, 1.0) if figures else None
        dropped = " dropped" if keep is not None and keep < 0.9995 else ""
        shown = DASH if keep is None else f"keep {percent(keep)}"
        lines.append(f'<tspan class="keep{dropped}" data-keep="{escape(name)}">{shown}</tspan>')
    lines = [line for line in lines if line]
    start = top - 7.0 * len(lines) + 4
    texts = "".join(
        f'<text class="small" x="{centre:.1f}" y="{start + 14 * (index + 1):.1f}">{line}</text>'
        for index, line in enumerate(lines)
    )
    radius = 4 if kind == "operator" else min(place.height / 2, 14)
    return (
        f'<g class="{kind}"><rect x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="{radius:.1f}"/>'
        f'<text class="title" x="{centre:.1f}" y="{start:.1f}">{escape(shorten(name))}</text>{texts}</g>'
    )


def _figure(network: Network, name: str, figures: Flow | None) -> str:
    if name in network.streams:
        shown = rate_text(figures.rates[name]) if figures else DASH
        return f'<tspan data-rate="{escape(name)}">{shown}</tspan>'
    if name in network.outputs:
        shown = rate_text(figures.throughput.get(name, 0.0)) if figures else DASH
        return f'<tspan data-out="{escape(name)}">{shown}</tspan>'
    return ""


def _static(network: Network, name: str) -> list[str]:
    return [escape(line) for line in _lines(network, name)] if name not in network.streams else []


def _arrows(network: Network, layout: PictureLayout, figures: Flow | None) -> list[str]:
    found = []
    places = set(network.drop_locations)
    for arc, points in layout.routes.items():
        at = str(arc)
        rate = figures.arcs.get(at, 0.0) if figures else None
        idle = " idle" if rate == 0 else ""
        lead = BADGE + 6 if at in places else 0.0
        (end_x, end_y), (x, y) = points[-1], points[0]
        found.append(f'<path class="arc{idle}" data-path="{escape(at)}" d="{_path(points, lead)}"/>')
        shown = DASH if rate is None else rate_text(rate)
        found.append(
            f'<text class="rate" data-arc="{escape(at)}" x="{end_x - 11:.1f}" y="{end_y - 4:.1f}">{shown}</text>'
        )
        if at in places:
            keep = figures.keeps.get(at, 1.0) if figures else 1.0
            dropped = " dropped" if keep < 0.9995 else ""
            found.append(
                f'<g class="badge{dropped}" data-badge="{escape(at)}"><rect x="{x + 3:.1f}" y="{y - 8:.1f}" '
                f'width="{BADGE:.1f}" height="16" rx="5"/><text data-keep="{escape(at)}" '
                f'x="{x + 3 + BADGE / 2:.1f}" y="{y + 3.6:.1f}">keep {percent(keep)}</text></g>'
            )
    return found


def _path(points: Sequence[tuple[float, float]], lead: float) -> str:
    """Smooth curves that leave and enter every point level; upright lines where an arrow runs back."""
    (x0, y0), (end_x, end_y) = points[0], points[-1]
    if end_x <= x0:
        return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    turns = [(x0 + lead, y0), *points[1:-1], (max(end_x - 58, x0 + lead), end_y)]
    text = f"M{x0:.1f} {y0:.1f} L{turns[0][0]:.1f} {y0:.1f}"
    for (ax, ay), (bx, by) in pairwise(turns):
        bend = abs(bx - ax) / 2
        text += f" C{ax + bend:.1f} {ay:.1f} {bx - bend:.1f} {by:.1f} {bx:.1f} {by:.1f}"
    return f"{text} L{end_x - 1:.1f} {end_y:.1f}"


def rate_text(rate: float) -> str:
    """Tuples/s as the page writes them.

    >>> rate_text(0.25), rate_text(1234.5)
    ('0.25/s', '1234/s')
    """
    return f"{number(rate)}/s"


def percent(share: float) -> str:
    """A share as the page writes it.

    >>> percent(1.0), percent(0.4567), percent(0.0001)
    ('100%', '45.7%', '0.0%')
    """
    return "100%" if share >= 0.9995 else f"{share:.1%}"
