"""The report of a run says what its ledger says, what it means, and what to do; one HTML file that fetches nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from floodway.agent.account import Counts
from floodway.cli.report import report
from floodway.dashboard.advice import advice
from floodway.dashboard.report import make_report, to_html
from floodway.errors import InputError
from tests.dashboard.made_state import CLICKS, TARGET, MadeJob, demo_network

app = typer.Typer()
app.command()(report)


class Tags(HTMLParser):
    """Whether every element is closed, and which addresses are named."""

    VOID = ("meta", "line", "path", "polygon", "rect", "i", "br", "marker")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_report_is_that_of_the_ledger(made: MadeJob) -> None:
    found = make_report(made.root)
    body = found.to_dict()
    totals = made.ledger.totals()
    assert body["dropped"]["clicks"]["shedder"] == totals.dropped_by["clicks", "shedder"]
    assert body["offered"]["clicks"] == 31 * CLICKS
    assert body["reconciled"] is True
    assert body["latency"]["mean"] == pytest.approx(1.8, rel=0.01)
    assert body["latency"]["target"] == TARGET
    assert body["score"] == pytest.approx(1852.0)
    assert body["optimum"] == pytest.approx(1900.0)
    assert any("shop needs 2.0 times the CPU" in text for text in body["advice"])


def test_the_file_stands_alone(made: MadeJob) -> None:
    text = to_html(make_report(made.root))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.addresses == []
    assert "<script" not in text
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "did not fit into the capacity" in text
    assert text.count("<svg") == 4  # the network and three charts


def test_the_command_prints_writes_and_judges(made: MadeJob, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    answer = CliRunner().invoke(app, [str(made.root), "--html", str(out)])
    assert answer.exit_code == 0, answer.output
    assert "what to do next" in answer.output
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    made.batch += 2
    made.run(1)
    answer = CliRunner().invoke(app, [str(made.root), "--json"])
    assert answer.exit_code == 1
    body = json.loads(answer.output)
    assert body["reconciled"] is False
    assert "audit" in body["advice"][0]


def test_a_folder_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no ledger with any batch"):
        make_report(tmp_path)


def told(**changed: Any) -> list[str]:
    """The advice for a run where nothing was wrong, but for what is changed."""
    usual: dict[str, Any] = {
        "network": demo_network(),
        "counts": Counts(offered=Counter(clicks=100), kept=Counter(clicks=100)),
        "seconds": 10.0,
        "mode": "enforce",
        "latency": {"mean": 1.5, "target": 2.0},
        "unreachable": False,
        "floor_seconds": None,
        "score": 100.0,
        "optimum": 100.0,
        "differences": 0,
    }
    return advice(**{**usual, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Nothing"),
        ({"differences": 2}, "floodway audit"),
        ({"mode": "off", "latency": {"mean": 9.0, "target": 2.0}}, "--mode enforce"),
        ({"latency": {"mean": 9.0, "target": 2.0}}, "although tuples were dropped"),
        ({"unreachable": True, "floor_seconds": 3.0}, "about 3.00 s"),
        ({"score": 50.0}, "floodway measure"),
        ({"waiting": 900}, "900 tuples still waited"),
        ({"latency": {"mean": None, "target": 2.0}}, "No latency was measured"),
        ({"counts": Counts(dropped=Counter({("clicks", "dead-letter"): 1}))}, "dead-letters"),
        ({"counts": Counts(dropped=Counter({("clicks", "retention"): 1}))}, "keep the logs longer"),
    ],
)
def test_advice_fits_what_happened(changed: dict[str, Any], words: str) -> None:
    assert words in told(**changed)[0]
