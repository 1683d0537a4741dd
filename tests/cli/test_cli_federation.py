"""`floodway validate`, `participant` and `payments` for federations: what they print, and what they refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from floodway.agent.federation.journal_rows import BookedEntry, MoveRow
from floodway.agent.federation.participant_journal import FILE, Journal
from floodway.agent.loop.run_files import locked
from floodway.contracts.payment import Payment, PaymentReason
from tests.command import floodway

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "federation" / "three.yaml"
CATALOGUE = ("--catalogue", "examples.intrusion_catalogue")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / FILE, "A")
    row = MoveRow("A/0", "giver", "A", "B", 4.0, {"f": 0.5}, {"f": 1}, "asked", 100.0)
    journal.begin(row)
    journal.reach("A/0", "done", seconds={"stop": 0.5, "hand_over": 0.1, "start": 0.25}, at=100.0)
    journal.book(
        BookedEntry(Payment("A/0/f/load/0.000", "A", "B", 20.0, PaymentReason.LOAD, 110.0), "A/0", 100.0, agreed=True)
    )
    journal.book(BookedEntry(Payment("A/0/f/penalty/0.000", "B", "A", 2.5, PaymentReason.PENALTY, 110.0), "A/0", 100.0))
    journal.close()
    return tmp_path


def test_the_ledger_tells_who_ran_what_for_whom_at_which_price(state: Path) -> None:
    body = json.loads(floodway("payments", state, "--json").stdout)
    (move,) = body["moves"]
    assert (move["giver"], move["taker"], move["fragments"], move["price"]) == ("A", "B", ["f"], 4.0)
    assert (move["paid"], move["penalties"], move["seconds"]["start"]) == (20.0, 2.5, 0.25)
    assert body["balances"] == {"A": -17.5, "B": 17.5}
    assert [one["agreed"] for one in body["entries"]] == [True, False]
    shown = floodway("payments", state).stdout
    assert "A/0" in shown and "1 not agreed" in shown
    former = floodway("ledger", state)
    assert former.stdout == shown
    assert "`floodway ledger` is called `floodway payments` now" in former.stderr


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    answer = floodway("payments", tmp_path)
    assert answer.returncode == 1 and "--state of a `floodway participant`" in answer.stderr
    (tmp_path / FILE).write_text("this is not a database, however long it may be" * 20)
    answer = floodway("payments", tmp_path)
    assert answer.returncode == 1 and "is no journal" in answer.stderr


def test_a_federation_file_is_validated(tmp_path: Path) -> None:
    answer = floodway("validate", EXAMPLE, "--json")
    assert json.loads(answer.stdout) == {"ok": True, "errors": [], "name": "three"}
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(EXAMPLE.read_text().replace("owner: A, run: active-sources", "owner: Z, run: active-sources"))
    answer = floodway("validate", wrong, "--json")
    (error,) = json.loads(answer.stdout)["errors"]
    assert answer.returncode == 2 and error["key"] == "fragments.utah-active.owner" and error["line"] > 1


def test_a_folder_that_another_process_has_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with locked(tmp_path / "A"):
        answer = floodway(
            *("participant", EXAMPLE, "--name", "A", "--state", tmp_path / "A", "--shared", tmp_path, *CATALOGUE)
        )
    assert answer.returncode == 2 and f"in use by process {os.getpid()}" in answer.stderr
    assert not (tmp_path / "fragments").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("--name", "D"), "no participant 'D'"),
        (("--catalogue", "examples.none"), "cannot be imported"),
        (("--catalogue", "examples.intrusion_logs"), "has no catalogue"),
        (("--listen", "0.0.0.0:0"), "nothing authenticates"),
        (("--listen", "nowhere"), "HOST:PORT"),
        (("--lease", "0"), "--lease"),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    options = {"--name": "A", "--state": tmp_path / "A", "--shared": tmp_path, "--catalogue": CATALOGUE[1]}
    options[change[0]] = change[1]
    answer = floodway("participant", EXAMPLE, *[part for pair in options.items() for part in pair])
    assert answer.returncode == 2 and told in answer.stderr, answer.stderr
