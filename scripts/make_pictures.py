"""Draw the pictures of the README and the docs into docs/pictures: `python scripts/make_pictures.py [FOLDER]`.

Networks are drawn as `floodway explain --picture` draws them, with the drops of `floodway plan` where a plan is shown;
the rate space is drawn from the exact planner's own regions. The same code and locked versions give the same bytes, so
that a test can tell when a picture is out of date (tests/docs/test_docs_pictures.py).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from floodway.job.options import values
from floodway.network.fair import fair
from floodway.network.file import load_network
from floodway.network.picture import save_picture
from floodway.planning.exact import ExactPlanner
from floodway.planning.factory import make_planner
from floodway.planning.program import Program

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
FIGURE1 = "examples/networks/figure1.yaml"
SPLIT = "examples/networks/split.yaml"
SHOP = "examples/networks/shop.yaml"
REGIONS = "figure1-regions"
INK, GRID_POINTS, TOP = "#1f2d3d", 241, 1.2


@dataclass(frozen=True, slots=True)
class NetworkPicture:
    """One network at given rates, with the best plan's drops or without any."""

    name: str
    network: str
    rates: str
    planned: bool


NETWORKS = (
    NetworkPicture("shop-plan", SHOP, "clicks=400,orders=500", planned=True),
    NetworkPicture("figure1-unshed", FIGURE1, "s1=1,s2=1", planned=False),
    NetworkPicture("figure1-plan", FIGURE1, "s1=1,s2=1", planned=True),
    NetworkPicture("split-plan", SPLIT, "s=0.2", planned=True),
)


def names() -> list[str]:
    """File names of all pictures."""
    return [f"{name}.svg" for name in (*(picture.name for picture in NETWORKS), REGIONS)]


def make(folder: Path) -> None:
    """Write every picture into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in NETWORKS:
        draw_network(picture, folder / f"{picture.name}.svg")
    draw_regions(folder / f"{REGIONS}.svg")


def draw_network(picture: NetworkPicture, path: Path) -> None:
    """What `floodway explain --rates … [--plan-json …] --picture PATH` does, without a process for each picture."""
    network = load_network(ROOT / picture.network)
    rates = values.rates("rates", picture.rates)
    keeps = dict(make_planner(network).plan(rates).drops) if picture.planned else {}
    save_picture(network, path, rates=rates, keeps=keeps, result=fair(network, rates, keeps))


def draw_regions(path: Path) -> None:
    """The rate space of Figure 1: where nothing is dropped, and the regions of the optimal plans beyond."""
    planner = ExactPlanner(Program(load_network(ROOT / FIGURE1)))
    axis = np.linspace(TOP / GRID_POINTS, TOP, GRID_POINTS)
    found: dict[tuple[float, ...], int] = {}
    regions = np.zeros((GRID_POINTS, GRID_POINTS))
    scores = np.zeros_like(regions)
    for row, second in enumerate(axis):
        for column, first in enumerate(axis):
            rates: NDArray[np.float64] = np.array([first, second])
            _, bound = planner.tangent(rates)
            assert bound is not None
            scores[row, column] = bound @ np.append(rates, 1.0)
            if planner.program.overloaded(rates):
                key = tuple(bound.round(9).tolist())
                regions[row, column] = found.setdefault(key, len(found) + 1)
    figure = Figure(figsize=(4.6, 4.2), facecolor="white")
    axes = figure.add_subplot()
    levels = np.arange(-0.5, len(found) + 1)
    colours = ["#dff1e3", "#dbeafa", "#fdeccf", "#f6d9d5", "#e4dcf1"][: len(found) + 1]
    axes.contourf(axis, axis, regions, levels=levels, colors=colours, antialiased=False)
    lines = axes.contour(axis, axis, scores, levels=np.arange(0.1, 0.8, 0.1), colors=INK, linewidths=0.7)
    axes.clabel(lines, fmt="%.1f", fontsize=7)
    axes.plot([1.0], [1.0], "o", color="#c0392b")
    axes.annotate("(1, 1): keep 20%, 40%", (1.0, 1.0), (0.62, 1.07), fontsize=8, color="#c0392b")
    arrow = {"arrowstyle": "-", "color": INK, "linewidth": 0.7}
    axes.annotate("nothing is dropped", (0.14, 0.2), (0.5, 0.17), fontsize=8, color=INK, arrowprops=arrow)
    axes.annotate("best score 0.6, whatever the rates", (0.32, 0.7), fontsize=8, color=INK)
    axes.set(xlabel="rate of s1 (tuples/s)", ylabel="rate of s2 (tuples/s)", title="figure1: regions and best scores")
    axes.set_aspect("equal")
    figure.tight_layout()
    with rc_context({"svg.hashsalt": "floodway"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
