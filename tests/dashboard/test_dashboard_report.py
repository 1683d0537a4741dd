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

from floodway.cli.report import report
from floodway.dashboard.advice import advice
from floodway.dashboard.report import make_report
from floodway.dashboard.report_html import to_html
from floodway.errors import InputError
from floodway.job.fold import Counts
from floodway.job.shed_state import ShedFiles
from tests.dashboard.made_state import CLICKS, KEEPS, TARGET, MadeJob, demo_network

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
    assert body["dropped"]["clicks"]["shedder"] == made.ledger.fold().total.dropped["clicks", "shedder"]
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
    assert "ran 31 s, mode enforce" in answer.output
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    made.batch += 2
    made.run(1)
    answer = CliRunner().invoke(app, [str(made.root), "--json"])
    assert answer.exit_code == 1
    body = json.loads(answer.output)
    assert body["reconciled"] is False
    assert "audit" in body["advice"][0]


def test_rates_are_over_the_seconds_in_which_it_ran(made: MadeJob) -> None:
    once = make_report(made.root)
    made.now += 7 * 86_400
    made.run(31)
    twice = make_report(made.root)
    assert (twice.seconds, twice.pauses) == (62.0, 1)
    assert twice.figures is not None and once.figures is not None
    assert twice.figures.rates == pytest.approx(once.figures.rates)
    assert twice.score == pytest.approx(once.score)
    assert twice.optimum == pytest.approx(once.optimum)
    times = [sample.time for sample in twice.samples]
    assert times == sorted(times) and times[-1] == 62.0  # drawn without the week between
    assert [sample.offered for sample in twice.samples if sample.offered == 0.0] == [0.0, 0.0]  # but for its ends
    assert "62 s without 1 pause," in to_html(twice)


def test_a_long_run_is_counted_whole_and_drawn_whole(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "long", 1_700_000_000)
    job.start()
    job.long(1000, every=30)
    found = make_report(job.root)
    assert found.seconds == 30 * 999 + 1  # a first batch has no time before it
    assert found.figures is not None
    assert found.figures.rates == pytest.approx({"clicks": 400.0, "orders": 500.0}, rel=0.01)
    times = [sample.time for sample in found.samples]
    assert 300 <= len(times) <= 365 and times[0] < 200 and times[-1] == found.seconds
    offered = sum(round(sample.offered * sample.seconds) for sample in found.samples)
    assert offered == found.counts.offered["clicks"] + found.counts.offered["orders"]
    assert [sample.latency for sample in found.samples] == pytest.approx([1.8] * len(times))
    text = to_html(found)
    assert "<h2>Latency against target</h2>" in text and ">8 h</text>" in text


def test_a_change_of_mode_is_told_and_drops_are_not_denied(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    ShedFiles(job.root).write_mode("observe")
    job.run(20, latency=9.0, keeps=dict.fromkeys(KEEPS, 1.0))
    ShedFiles(job.root).write_mode("enforce")
    job.run(15, latency=9.0)
    found = make_report(job.root)
    assert found.mode == "observe, enforce"
    assert "for 57% of the time the mode was observe" in found.advice[0]
    assert not any("nothing was dropped" in text for text in found.advice)


def test_a_folder_of_several_jobs_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        job = MadeJob(tmp_path / name, 1_700_000_000, name=f"job-{name}")
        job.start()
        job.run(2)
    with pytest.raises(InputError, match="holds 2 jobs") as told:
        make_report(tmp_path)
    assert f"{tmp_path / 'two'} (job-two)" in str(told.value)
    assert make_report(tmp_path / "two").name == "job-two"


def test_a_folder_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no ledger with any batch"):
        make_report(tmp_path)


LATE = {"mean": 9.0, "target": 2.0}
SHED = Counts(offered=Counter(clicks=9), kept=Counter(clicks=8), dropped=Counter({("clicks", "shedder"): 1}))
INSIDE = Counts(offered=Counter({"clicks": 100, "enrich->dashboard": 500}))
"""What is offered on an arc inside has been counted at the input already."""


def told(**changed: Any) -> list[str]:
    """The advice for a run where nothing was wrong, but for what is changed."""
    usual: dict[str, Any] = {
        "network": demo_network(),
        "counts": Counts(offered=Counter(clicks=100), kept=Counter(clicks=100)),
        "seconds": 10.0,
        "modes": {"enforce": 40},
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
        ({"modes": {"off": 9}, "latency": LATE}, "the mode was off: nothing was dropped"),
        ({"modes": {"off": 9, "observe": 1}, "latency": LATE}, "off and observe: nothing was dropped"),
        ({"modes": {"observe": 3, "enforce": 1}, "latency": LATE, "counts": SHED}, "75% of the time the mode was obs"),
        ({"latency": LATE, "counts": SHED}, "although tuples were dropped"),
        ({"latency": LATE}, "although the mode was enforce; nothing was dropped"),
        ({"unreachable": True, "floor_seconds": 3.0}, "about 3.00 s"),
        ({"score": 50.0}, "floodway measure"),
        ({"waiting": 900}, "900 tuples still waited"),
        ({"waiting": 30, "counts": INSIDE}, "30 tuples still waited"),
        ({"latency": {"mean": None, "target": 2.0}}, "No latency was measured"),
        ({"counts": Counts(dropped=Counter({("clicks", "dead-letter"): 1}))}, "dead-letters"),
        ({"counts": Counts(dropped=Counter({("clicks", "retention"): 1}))}, "keep the logs longer"),
    ],
)
def test_advice_fits_what_happened(changed: dict[str, Any], words: str) -> None:
    assert words in told(**changed)[0]
