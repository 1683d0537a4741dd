"""A node for which no plan can be made still obeys its operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.agent.node.steering import NodeSteering
from floodway.errors import PlanningError
from floodway.job.decision import JobDecision, follow_mode, read_decision, write_decision, write_mode
from floodway.job.store.store import LocalStore
from floodway.spark.session.session import Session
from tests.agent.jobs import node_job
from tests.patience import wait_until


def test_a_decision_changes_its_mode_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    made = JobDecision(plan="7", mode="enforce", arcs={"a->b": 500_000}, issued_us=3)
    write_decision(path, made)
    follow_mode(path, "off")
    assert read_decision(path) == JobDecision(plan="7", mode="off", arcs={"a->b": 500_000}, issued_us=3)
    path.write_text("{torn")
    follow_mode(path, "off")
    assert read_decision(path) == JobDecision(mode="off")


@pytest.mark.spark
def test_the_kill_switch_needs_no_plan(spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unplanned(*_: object) -> None:
        raise PlanningError("the solver has no answer", hint="none")

    with node_job(spark, tmp_path) as job:
        decision = job.folder / "decision.json"
        wait_until(lambda: read_decision(decision).mode == "enforce", "the first decision")
        monkeypatch.setattr(NodeSteering, "plan_with", unplanned)
        write_mode(LocalStore(job.folder), "off")
        wait_until(lambda: read_decision(decision).mode == "off", "the kill switch")
        wait_until(lambda: job.status().mode == "off", "a status that says so")
        assert job.status().reason.startswith("no plan could be made")
