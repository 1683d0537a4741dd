"""The figures of the buffer paper on one or two seeds; `floodway reproduce` runs ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.errors import InputError
from floodway.experiments.buffer import common
from floodway.experiments.registry import EXPERIMENTS, load
from floodway.experiments.result import Claim, Criterion, Reproduction, Result
from tests.experiments.verdicts import check_verdict

BUFFER = [name for name in EXPERIMENTS if name.startswith("buffer-")]


@pytest.mark.parametrize("name", BUFFER)
def test_the_claim_holds_and_the_plot_is_drawn(name: str, tmp_path: Path) -> None:
    fractions: list[float] = []
    result = load(name).run(seeds=[11], trace=None, progress=fractions.append)
    check_verdict(name, result)
    assert result.where == "simulation"
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    (written,) = result.save_plots(tmp_path / "plots")
    assert written.read_bytes().startswith(b"\x89PNG")


def test_the_same_seeds_give_the_same_numbers() -> None:
    first, second = (load("buffer-fig6").run(seeds=[3], trace=None, progress=lambda _: None) for _ in range(2))
    assert first.measured == second.measured


def test_a_trace_is_run_on_and_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("arrivals per 100 ms bin\n" + "\n".join(str(3 + 20 * (place // 40 % 2)) for place in range(3000)))
    result = load("buffer-fig8").run(seeds=[1], trace=path, progress=lambda _: None)
    assert result.measured["traffic"] == "mine.csv"
    measured = result.measured[common.OURS]
    assert measured["CWB"]["on_time_ratio"] > measured["COB"]["on_time_ratio"]


def test_every_registered_module_has_a_title_and_a_run() -> None:
    for name in EXPERIMENTS:
        found = load(name)
        assert found.TITLE, name
        assert callable(found.run), name


def test_unknown_ids_get_the_nearest_one() -> None:
    with pytest.raises(InputError, match="Did you mean buffer-fig3"):
        load("bufer-fig3")


def test_results_become_json_without_their_plots() -> None:
    criteria = (Criterion("one", met=True), Criterion("two", met=False, found="3"))
    result = Result({"a": 1}, criteria, where="computation", why="w")
    assert Reproduction("x", "t", Claim("contracts", "Table 1", "c"), result, 0.12345).to_dict() == {
        "id": "x",
        "title": "t",
        "paper": {
            "source": "contracts",
            "name": "Contract-Based Load Management (Medusa)",
            "where": "Table 1",
            "claim": "c",
        },
        "measured": {"a": 1},
        "headline": "",
        "holds": False,
        "reason": "not met: two (3). w",
        "criteria": [{"text": "one", "met": True, "found": None}, {"text": "two", "met": False, "found": "3"}],
        "failed": None,
        "seconds": 0.123,
        "where": "computation",
        "notes": [],
    }
