"""One look for all figures: matplotlib `Figure` objects on the Agg canvas, with no global pyplot state.

matplotlib is imported when a figure is drawn, so that results can be had without it.

>>> figure, axes = panels(1, 2, width=8.0)
>>> style(axes[0], title="Utilisation", x="time (s)", y="share of CPU")
>>> len(figure.axes)
2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any

PALETTE = ("#0b6e8f", "#d1603d", "#6a8d3a", "#7d5ba6", "#c79a1b", "#5b6670")
"""Colour-blind safe as a sequence: neighbours differ in lightness as well as in hue."""
INK = "#22303c"
FAINT = "#c9d1d8"


def panels(rows: int = 1, columns: int = 1, *, width: float = 6.4, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels, each `height` inches tall; axes come back in reading order."""
    from matplotlib import figure as drawing
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawing.Figure(figsize=(width, height * rows), dpi=140, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, list(grid.flat)


def style(axes: Axes, *, title: str, x: str, y: str, legend: bool = False) -> None:
    """Title at the left, quiet grid and frame, labels with units; a legend without a box where asked."""
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold")
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    if legend:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def lines(axes: Axes, x: ArrayLike, series: dict[str, ArrayLike], *, marker: str = "") -> None:
    """One line a series in palette order, named for the legend."""
    for (name, values), colour in zip(series.items(), PALETTE, strict=False):
        axes.plot(np.asarray(x), np.asarray(values), color=colour, linewidth=1.6, label=name, marker=marker, ms=4)


def bars(axes: Axes, names: Sequence[str], values: Sequence[Sequence[float]], *, form: str = "{:.3f}") -> None:
    """A bar a name at the mean of its values, with one dot a seed and the mean written above."""
    for place, (name, colour) in enumerate(zip(names, PALETTE, strict=False)):
        mean = float(np.mean(values[place]))
        top = float(np.max(values[place]))
        axes.bar(place, mean, width=0.62, color=colour, alpha=0.88, label=name)
        spread = np.linspace(-0.18, 0.18, len(values[place])) if len(values[place]) > 1 else np.zeros(1)
        axes.plot(place + spread, values[place], "o", color=INK, ms=2.4, alpha=0.7)
        label = form.format(mean)
        axes.annotate(label, (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=8.5, color=INK)
    axes.set_xticks(range(len(names)), list(names))
    axes.margins(y=0.15)
