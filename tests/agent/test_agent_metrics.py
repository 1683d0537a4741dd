"""The metrics say what the ledger says, follow Prometheus' conventions, and are those that ops/ asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from floodway.agent.federation.participant_figures import MemberRecord
from floodway.agent.watch.metrics import Watched, metrics_text
from floodway.dashboard.routes import page_server
from floodway.job.status.batches import Latency, Sketch
from floodway.job.status.parts import ParticipantPart
from floodway.job.status.status import LedgerPart, NodePart, Place, PlanPart, ProcessPart, Rates, Status, at_inputs
from tests.dashboard.made_state import MadeJob
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def watched() -> Watched:
    """A job with something of everything."""
    places = {
        "s": Place(0.4, 10.0, 7, Rates(10.0, 4.0), offered=10, kept=4, dropped={"shedder": 6}),
    }
    rates, keep, totals = at_inputs(places, places)
    status = Status(
        name="net",
        kind="run",
        mode="observe",
        time=2.0,
        latency=Latency(mean=1.5, target=2.0),
        rates=rates,
        keep=keep,
        totals=totals,
        decision_seen=True,
        errors=3,
        places=places,
        delivered={"q": 4},
        nodes={"A": NodePart(0.5, 1.0, "observe", 1.0)},
        plan=PlanPart("8f3a01bc", "exact", "throughput", overloaded=True, scale=0.9),
        ledger=LedgerPart(1, ("a batch is missing",)),
        network="net",
    )
    latencies = Sketch.of([(0.4, 3), (70.0, 1)])
    return Watched("job", status, latencies, load={"A": 0.5}, score=1.0, optimum=2.0)


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_values_are_those_of_the_job() -> None:
    found = values(metrics_text([watched()]).decode())

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset({"job_name": "job", **labels}.items())]

    assert value("floodway_offered_tuples_total", place="s") == 10
    assert value("floodway_dropped_tuples_total", place="s", reason="shedder") == 6
    assert value("floodway_result_latency_seconds_bucket", le="0.5") == 3
    assert value("floodway_result_latency_seconds_bucket", le="60.0") == 3
    assert value("floodway_result_latency_seconds_bucket", le="+Inf") == 4
    assert value("floodway_result_latency_seconds_count") == 4
    assert value("floodway_result_latency_seconds_sum") == pytest.approx(71.2)
    assert [value("floodway_mode", mode=mode) for mode in ("enforce", "observe", "off")] == [0, 1, 0]
    assert value("floodway_would_drop_ratio") == pytest.approx(0.6)
    assert value("floodway_backlog_tuples", place="s") == 7
    assert value("floodway_status_timestamp_seconds") == 2.0
    assert value("floodway_ledger_differences") == 1
    assert value("floodway_errors_total") == 3
    assert value("floodway_decision_seen") == 1


def test_names_follow_the_conventions() -> None:
    for family in text_string_to_metric_families(metrics_text([watched()]).decode()):
        assert re.fullmatch(r"floodway_[a-z_]+", family.name)
        assert family.documentation.endswith("."), family.name
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        if family.type == "gauge":
            assert not family.name.endswith("_total")


def exposed(folder: Path) -> set[str]:
    """Names of all series, without values: those of a job, and those of a participant."""
    record = MemberRecord("A", folder, target_seconds=10.0)
    member = record.status(ParticipantPart(cpu=1.0, load=0.5), now=2.0, process=ProcessPart(1), mode="enforce")
    return {name for name, _ in values(metrics_text([watched(), Watched("A", member)]).decode())}


def asked(expression: str) -> set[str]:
    """The metric names in a PromQL expression, read by a real parser: what Prometheus would not load is refused."""
    found: set[str] = set()

    def note(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector) and part.name:
            found.add(part.name)

    promql_parser.walk(promql_parser.parse(expression), note)
    return found


def test_asked_finds_the_names() -> None:
    assert asked('sum by (le) (rate(a_total{x="b"}[5m])) > 2 * c') == {"a_total", "c"}
    assert asked('a_total{x="b"} - (a_total offset 15m or a_total * 0) > 0') == {"a_total"}


@pytest.mark.parametrize("expression", ["a > 2 * on (job_name) b", "rate(a)", "a >", "sum by (a"])
def test_an_expression_that_prometheus_would_not_load_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        asked(expression)


def test_the_dashboard_asks_only_for_what_is_exposed(tmp_path: Path) -> None:
    board = json.loads((ROOT / "ops" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    # Variables are filled in by Grafana, whose own function label_values takes a selector and a label.
    choices = [item["query"] for item in board["templating"]["list"] if item["type"] == "query"]
    expressions += [text.removeprefix("label_values(").rpartition(",")[0] for text in choices]
    assert len(expressions) > 10
    assert {name for text in expressions for name in asked(text)} - exposed(tmp_path) == set()


def test_the_alerts_ask_only_for_what_is_exposed_and_say_what_to_do(tmp_path: Path) -> None:
    groups = yaml.safe_load((ROOT / "ops" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        names = asked(rule["expr"])
        assert names and names <= exposed(tmp_path), rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["action"].endswith(".")


def test_a_node_without_measured_loads_has_the_planned_ones() -> None:
    status = Status("A", "node", "enforce", 2.0, nodes={"A": NodePart(0.8, 2.0), "B": NodePart(0.8)})
    found = values(metrics_text([Watched("A", status)]).decode())
    assert found["floodway_node_load_ratio", frozenset({"job_name": "A", "node": "A"}.items())] == 0.4
    assert ("floodway_node_load_ratio", frozenset({"job_name": "A", "node": "B"}.items())) not in found


def test_the_page_serves_metrics_that_equal_the_ledger(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_000)
    job.start()
    job.run(3)
    with page_server([job.root]) as server:
        answer = httpx.get(f"{server.url}/metrics", trust_env=False, timeout=PATIENCE_SECONDS)
    assert answer.headers["content-type"].startswith("text/plain")
    found = values(answer.text)
    for (at, reason), count in job.ledger.fold().total.dropped.items():
        if reason == "shedder":
            labels = frozenset({"job_name": "demo", "place": at, "reason": reason}.items())
            assert found["floodway_dropped_tuples_total", labels] == count
