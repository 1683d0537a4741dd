"""The FIT examples, the split, Table 3 and Figure 15: claims hold, numbers are those checked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.experiments.registry import load
from floodway.experiments.result import Result
from tests.experiments.verdicts import check_verdict


def run(identifier: str) -> Result:
    done: list[float] = []
    result = load(identifier).run(seeds=[1], trace=None, progress=done.append)
    assert done == sorted(done) and done[-1] == pytest.approx(1.0)
    assert result.headline
    return result


@pytest.mark.parametrize(
    "identifier",
    [f"staying-fit-{name}" for name in ("fit-examples", "split-example", "propagation", "dfit", "table3", "fig15")],
)
def test_claims_hold_and_plots_are_drawn(identifier: str, tmp_path: Path) -> None:
    result = run(identifier)
    check_verdict(identifier, result)
    (written,) = result.save_plots(tmp_path)
    assert written.read_bytes().startswith(b"\x89PNG")


def test_table_3_beside_what_is_printed() -> None:
    measured = run("staying-fit-table3").measured
    assert [row["rows of one server"] for row in measured.values()] == [66, 1001, 43758]
    assert [row["rows printed"] for row in measured.values()] == [46, 984, 42472]


def test_node_b_has_48_rows_and_says_why_46_are_printed() -> None:
    result = run("staying-fit-fit-examples")
    assert result.measured["rows"] == 48
    assert any("46" in note for note in result.notes)


def test_figure_15_more_is_sent_for_larger_changes() -> None:
    measured = run("staying-fit-fig15").measured
    selectivity, moved = measured["selectivity change"], measured["load moved (ms)"]
    at = selectivity["allowed difference"].index(0.1)
    assert selectivity["0.9"][at] < selectivity["0.8"][at] < selectivity["0.4"][at]
    assert moved["4"][at] < moved["8"][at] < moved["16"][at] < moved["24"][at]
    rows = measured["rows"]
    assert rows["64, 32"][0] < rows["32, 16"][0]
