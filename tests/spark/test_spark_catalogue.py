"""The catalogue: what is refused before anything starts, and what a fragment's inputs are."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pydantic import BaseModel

from floodway.errors import InputError
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.inputs import Arrivals, place, source_options
from floodway.spark.query.catalogue import Catalogue, CatalogueError
from floodway.spark.source.options import SourceOptions

TOPIC = "kafka://one:9092,two:9092/clicks"


class Loose(BaseModel):
    """Lets unknown parameters pass, which no entry may."""


def made() -> Catalogue:
    catalogue = Catalogue()
    catalogue.entry("plain", inputs=("clicks",))(lambda inputs, parameters: inputs["clicks"])
    catalogue.entry("typed", inputs={"clicks": "id bigint"})(lambda inputs, parameters: inputs["clicks"])
    return catalogue


def test_a_topic_needs_an_entry_that_says_what_its_values_hold() -> None:
    catalogue = made()
    catalogue.check("plain", {"clicks": "logs/clicks"}, {})
    catalogue.check("typed", {"clicks": TOPIC}, {})
    with pytest.raises(CatalogueError, match="values of Kafka topics for 'clicks'"):
        catalogue.check("plain", {"clicks": TOPIC}, {})


def test_unknown_inputs_and_parameters_are_refused() -> None:
    catalogue = made()
    with pytest.raises(CatalogueError, match="reads clicks, not views"):
        catalogue.check("plain", {"views": "logs/views"}, {})
    with pytest.raises(CatalogueError, match="refuses depth"):
        catalogue.check("plain", ("clicks",), {"depth": 2})
    with pytest.raises(InputError, match="two entries 'plain'"):
        catalogue.entry("plain", inputs=())(lambda inputs, parameters: inputs["clicks"])
    with pytest.raises(InputError, match="let unknown ones pass"):
        catalogue.entry("loose", inputs=(), parameters=Loose)


def test_inputs_are_logs_below_the_shared_folder_or_topics_as_they_are() -> None:
    assert place(Path("shared"), "logs/clicks") == "shared/logs/clicks"
    assert place(Path("shared"), TOPIC) == TOPIC
    assert source_options("shared/logs/clicks", "id bigint") == {"path": "shared/logs/clicks"}
    options = source_options(TOPIC, "id bigint")
    assert options == {"kafka.bootstrap.servers": "one:9092,two:9092", "topic": "clicks", "schema": "id bigint"}


def test_arrivals_outlive_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    create_log(tmp_path / "log", "id bigint")
    with LogWriter(tmp_path / "log") as writer:
        writer.append(pa.table({"id": [1, 2, 3]}))
        arrivals = Arrivals({"clicks": str(tmp_path / "log")})
        assert arrivals.totals() == {"clicks": 3}
        writer.append(pa.table({"id": [4]}))
    assert arrivals.totals() == {"clicks": 4} and arrivals.silent == 0
    shutil.rmtree(tmp_path / "log")
    assert arrivals.totals() == {"clicks": 4} and arrivals.silent == 1


def test_the_first_question_waits_as_long_as_a_source_and_those_of_a_tick_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    def opened(options: SourceOptions) -> SimpleNamespace:
        def latest() -> dict[int, int]:
            waited.append(options.timeout_seconds)
            return {0: 3, 1: 4}

        return SimpleNamespace(latest=latest)

    monkeypatch.setattr("floodway.spark.log.inputs.open_backend", opened)
    arrivals = Arrivals({"clicks": TOPIC})
    assert arrivals.totals() == {"clicks": 7}
    assert waited == [SourceOptions().timeout_seconds, 2.0]
