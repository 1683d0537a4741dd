"""A plan's name in a ledger means the same in every process, and can be looked up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floodway.agent.loop.plan_book import PLANS, PlanBook, find_plan
from floodway.agent.loop.steering import Steered
from floodway.errors import InputError
from floodway.job.decision import JobDecision, QueueStep, StreamDecision, named
from floodway.job.store.line_log import KeptLines
from floodway.job.store.store import LocalStore
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.source.offsets import BatchOffset
from tests.agent.test_agent_steering import split_network, steering


def decided(rate: float, issued_us: int = 0) -> Steered:
    return steering(split_network()).decide({"s": rate}, {"s": rate}, "enforce", issued_us)


def cut(plan: str, batch: int = 0) -> JournaledBatch:
    return JournaledBatch(batch, 0, {"s": BatchOffset("s", {0: 0}, {0: 5}, plan=plan)})


def test_the_same_keeps_have_the_same_name_and_others_another() -> None:
    again = [decided(500.0, issued_us).decision.plan for issued_us in (0, 7)]
    assert again[0] == again[1] != decided(400.0).decision.plan
    assert len(again[0]) == 8


@pytest.mark.parametrize(
    "other",
    [
        JobDecision(mode="enforce", streams={"s": StreamDecision(500_000)}),
        JobDecision(salt=1, streams={"s": StreamDecision(500_000)}),
        JobDecision(streams={"s": StreamDecision(500_001)}),
        JobDecision(streams={"s": StreamDecision(500_000, budget=3)}),
        JobDecision(streams={"s": StreamDecision(500_000)}, arcs={"a->b": 5}),
    ],
)
def test_all_that_decides_what_is_dropped_is_in_the_name(other: JobDecision) -> None:
    assert named(JobDecision(streams={"s": StreamDecision(500_000)})).plan != named(other).plan


def test_steps_of_a_buffer_are_named_by_their_time() -> None:
    steps = {"s": StreamDecision(buffer={0: QueueStep(1, 1, 3, (0, 9, 1_000_000))})}
    assert named(JobDecision(streams=steps, issued_us=1)).plan != named(JobDecision(streams=steps, issued_us=2)).plan


def book_lines(root: Path) -> list[dict[str, Any]]:
    return list(KeptLines(LocalStore(root), PLANS).read())


def test_the_book_has_one_line_for_every_plan_that_a_batch_was_cut_under(tmp_path: Path) -> None:
    book = PlanBook(tmp_path)
    steereds = [decided(rate, issued_us=int(rate)) for rate in (500.0, 600.0, 700.0)]
    for steered in (*steereds, *steereds):
        book.issued(steered.decision, steered)
    used = [steereds[0].decision.plan, steereds[2].decision.plan]
    for number, plan in enumerate((*used, *used, "unheard-of")):
        book.cut(cut(plan, number).plans)
    lines = book_lines(tmp_path)
    assert [line["id"] for line in lines] == used
    assert lines[0]["keeps"] == dict(steereds[0].plan.keeps)
    assert lines[0]["time_us"] == 500
    # Another process goes on with the same book, also behind a line that a crash has torn.
    (segment,) = (tmp_path / PLANS).glob("*.jsonl")
    with segment.open("a") as file:
        file.write('{"id": "torn')
    again = PlanBook(tmp_path)
    for steered in steereds:
        again.issued(steered.decision, steered)
        again.cut(cut(steered.decision.plan).plans)
    assert find_plan(tmp_path, steereds[1].decision.plan)["time_us"] == 600
    assert len(book_lines(tmp_path)) == 3
    with pytest.raises(InputError, match="no plan 'nothing'"):
        find_plan(tmp_path, "nothing")
