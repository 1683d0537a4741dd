"""What commands hand out: the table of losses that `run`, `up` and `report` share, and the report of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from floodway.cli.view.output import hand_out, losses_row, losses_table


def test_losses_are_shown_by_place_and_reason() -> None:
    table = losses_table("node", "place", title="What was lost")
    table.add_row("A", "clicks", *losses_row(10_000, 4_000, {"shedder": 5_990, "stale": 10}))
    table.add_row("A", "orders", *losses_row(5, 5, {}))
    console = Console(width=100, record=True)
    console.print(table)
    text = " ".join(console.export_text().split())
    for words in ("node", "dropped by reason", "10,000 │ 4,000 │ shedder 5,990, stale 10", "orders │ 5 │ 5 │ –"):
        assert words in text


@pytest.mark.parametrize("as_json", [True, False])
def test_a_report_goes_to_its_file_and_to_one_reader(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body, shown = {"score": 1.5}, list[str]()
    hand_out(body, tmp_path / "report.json", lambda: shown.append("shown"), as_json=as_json)
    assert json.loads((tmp_path / "report.json").read_text()) == body
    assert shown == ([] if as_json else ["shown"])
    assert capsys.readouterr().out.strip() == (json.dumps(body) if as_json else "")
