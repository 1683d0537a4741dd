"""The report of a run says what its ledger says, what it means, and what to do; one HTML file that fetches nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.report import report
from floodway.dashboard.advice import advice
from floodway.dashboard.job_report import make_report, to_html
from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.places import ShedFiles
from floodway.job.status.batches import Latency
from floodway.job.status.status import LedgerPart, Place, Status, at_inputs
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
    assert twice.flow is not None and once.flow is not None
    assert twice.flow.rates == pytest.approx(once.flow.rates)
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
    assert found.flow is not None
    assert found.flow.rates == pytest.approx({"clicks": 400.0, "orders": 500.0}, rel=0.01)
    times = [sample.time for sample in found.samples]
    assert 300 <= len(times) <= 365 and times[0] < 200 and times[-1] == found.seconds
    offered = sum(round(sample.offered * sample.seconds) for sample in found.samples)
    assert offered == found.status.totals.offered
    assert [sample.latency for sample in found.samples] == pytest.approx([1.8] * len(times))
    text = to_html(found)
    assert "<h2>Latency against target</h2>" in text and ">8 h</text>" in text


def test_a_change_of_mode_is_told_and_drops_are_not_denied(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    write_mode(ShedFiles(job.root).store, "observe")
    job.run(20, latency=9.0, keeps=dict.fromkeys(KEEPS, 1.0))
    write_mode(ShedFiles(job.root).store, "enforce")
    job.run(15, latency=9.0)
    found = make_report(job.root)
    assert list(found.modes) == ["observe", "enforce"]
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


def told(*, seconds: float = 10.0, score: float = 100.0, modes: Mapping[str, int] | None = None, **changed: Any) -> str:
    """The first sentence of the advice on a run where nothing was wrong, but for what is changed."""
    places = changed.pop("places", {"clicks": Place(offered=100, kept=100)})
    rates, keep, totals = at_inputs(places, [at for at in places if "->" not in at])
    usual: dict[str, Any] = {"latency": Latency(mean=1.5, target=2.0), "ledger": LedgerPart(9)}
    job = Status("demo", "run", "enforce", 0.0, rates=rates, keep=keep, totals=totals, places=places, **usual)
    return advice(
        replace(job, **changed),
        network=demo_network(),
        seconds=seconds,
        modes=modes or {"enforce": 40},
        score=score,
        optimum=100.0,
    )[0]


LATE = {"latency": Latency(mean=9.0, target=2.0)}
SHED = {"places": {"clicks": Place(offered=9, kept=8, dropped={"shedder": 1})}}
# What is offered on an arc inside has been counted at the input already.
INSIDE = {"places": {"clicks": Place(offered=100, kept=100, waiting=30), "enrich->dashboard": Place(offered=500)}}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Nothing: no tuple was dropped, and results were 1.5 s old on average at a target of 2 s."),
        ({"latency": Latency(mean=2.1, target=2.0)}, "results were 2.1 s old on average at a target of 2 s"),
        ({"ledger": LedgerPart(9, ("a batch is missing",))}, "floodway audit"),
        ({"modes": {"off": 9}, **LATE}, "the mode was off: nothing was dropped"),
        ({"modes": {"off": 9, "observe": 1}, **LATE}, "off and observe: nothing was dropped"),
        ({"modes": {"observe": 3, "enforce": 1}, **LATE, **SHED}, "75% of the time the mode was obs"),
        ({**LATE, **SHED}, "although tuples were dropped"),
        (LATE, "although the mode was enforce; nothing was dropped"),
        ({"unreachable": True, "floor_seconds": 3.0}, "about 3.00 s"),
        ({"score": 50.0}, "floodway measure"),
        ({"places": {"clicks": Place(offered=100, kept=100, waiting=900)}}, "900 tuples still waited"),
        (INSIDE, "30 tuples still waited"),
        ({"latency": Latency(target=2.0)}, "No latency was measured"),
        ({"places": {"clicks": Place(offered=9, dropped={"dead-letter": 1})}}, "dead-letters"),
        ({"places": {"clicks": Place(offered=9, dropped={"retention": 1})}}, "keep the logs longer"),
    ],
)
def test_advice_fits_what_happened(changed: dict[str, Any], words: str) -> None:
    assert words in told(**changed)


def test_commands_in_the_advice_are_in_the_file(tmp_path: Path) -> None:
    """The file once said "see what the controller says in , and whether": the command between was lost."""
    job = MadeJob(tmp_path / "demo", 1_700_000_000)
    job.start()
    job.run(20, latency=9.0)
    text = to_html(make_report(job.root))
    assert "<code>floodway top</code>" in text
    assert "<code></code>" not in text
