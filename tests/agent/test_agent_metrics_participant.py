"""A participant's metrics, from a real one's status: its moves are a counter from the first scrape on."""

from __future__ import annotations

from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from floodway.agent.federation.journal_rows import MoveRow, State
from floodway.agent.federation.participant import SHOWN_MOVES
from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import parse_federation
from tests.agent.federation_world import FILE, agent
from tests.patience import PATIENCE_SECONDS


def row(number: int, state: State = "intended") -> MoveRow:
    return MoveRow(f"A/{number}", "giver", "A", "B", 4.0, {"f0": 0.6}, {"f0": 1}, state, 1_000.0 + number)


def samples(url: str) -> dict[tuple[str, str], float]:
    """By name and state, of what the participant itself serves."""
    text = httpx.get(f"{url}/metrics", trust_env=False, timeout=PATIENCE_SECONDS).text
    return {
        (sample.name, sample.labels.get("state", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("job_name") == "A"
    }


def test_a_participant_serves_its_own_metrics_and_moves_only_ever_count_up(tmp_path: Path) -> None:
    a, b = free_ports(2)
    member = agent(parse_federation(FILE.format(a=a, b=b)), "A", tmp_path, lambda step: None)
    try:
        member.server.start()
        url = member.server.url
        first = samples(url)
        assert (first["floodway_moves_total", "done"], first["floodway_moves_total", "failed"]) == (0, 0)
        assert first["floodway_moves_open", ""] == 0
        before = first
        steps: tuple[State, ...] = ("taking", "failed", "done")
        for number, state in enumerate(steps):
            member.journal.begin(row(number))
            member.journal.reach(f"A/{number}", state)
            now = samples(url)
            for key, value in before.items():
                if key[0] == "floodway_moves_total":
                    assert now[key] >= value, "a counter never falls, and is never gone"
            before = now
        with member.journal.transaction():
            for number in range(3, 3 + SHOWN_MOVES):
                member.journal.begin(row(number, "done"))
        last = samples(url)
        assert last["floodway_moves_total", "done"] == 1 + SHOWN_MOVES, "also of more moves than a status lists"
        assert (last["floodway_moves_total", "failed"], last["floodway_moves_open", ""]) == (1, 1)
        assert first["floodway_contracts", ""] == 2
        assert not any(name == "floodway_plan_info" for name, _ in first)
        assert first["floodway_status_timestamp_seconds", ""] > 0
    finally:
        member.close()
