"""Bad input by the thousand, by mutation and by hypothesis; and what the fuzzing has found before."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.errors import FloodwayError, InputError, NetworkError
from floodway.experiments.chaos import fuzz
from floodway.experiments.chaos.fuzz_inputs import readers
from floodway.experiments.chaos.fuzz_partners import Reader
from floodway.experiments.chaos.plane_agents import NETWORK
from floodway.experiments.chaos.result import Trial
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.store.store import LocalStore
from floodway.network.file import parse_network
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.log.errors import SegmentError
from floodway.spark.log.kafka_links import Mark
from floodway.spark.source.offsets import parse_offset

DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return dict(readers(tmp_path_factory.mktemp("fuzz")))


def test_mutated_input_is_refused_in_words_and_crashes_nothing(tmp_path: Path) -> None:
    result = fuzz.faults(Trial(4000, 9, tmp_path))
    assert (result.tried, result.differences) == (4000, [])
    refused = result.detail["refused"]
    assert refused.keys() == readers(tmp_path).keys(), "a reader never refused anything"


def test_good_examples_are_taken(all_readers: dict[str, Reader]) -> None:
    for name, reader in all_readers.items():
        for example in reader.corpus:
            if b'"kind":"mode"' not in example:  # which D-FIT leaves to the route that the node has for it
                try:
                    reader.read(example)
                except FloodwayError as error:
                    pytest.fail(f"{name}: {error}")


@given(data=st.data())
def test_anything_is_taken_or_refused(all_readers: dict[str, Reader], data: st.DataObject) -> None:
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=12,
    )
    name = data.draw(st.sampled_from(sorted(all_readers)))
    raw = data.draw(st.binary(max_size=300) | json_values.map(lambda value: repr(value).encode()))
    try:
        all_readers[name].read(raw)
    except FloodwayError as error:
        if not str(error):
            pytest.fail(f"{name} refuses without a word")


@pytest.mark.parametrize(
    ("crash", "told"),
    [
        (lambda data: (_ for _ in ()).throw(KeyError("x")), "KeyError"),
        (lambda data: (_ for _ in ()).throw(FloodwayError("")), "a refusal of 0 characters"),
    ],
)
def test_a_reader_that_crashes_or_is_silent_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: Callable[[bytes], None], told: str
) -> None:
    monkeypatch.setattr(fuzz, "readers", lambda folder: {"bad": Reader([b"x"], crash, 1)})
    fuzz.run_chunk("1", 3, str(tmp_path / "report.json"))
    assert told in (tmp_path / "report.json").read_text()


def test_an_offset_that_is_nested_deeply_is_refused() -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        parse_offset(DEEP)


def test_a_ledger_line_that_is_nested_deeply_is_counted(tmp_path: Path) -> None:
    Ledger(LocalStore(tmp_path)).append([LedgerLine("q", 0, "s", "shedder", 9, 4, 5)])
    (path,) = (tmp_path / "ledger").glob("*.jsonl")
    with path.open("ab") as file:
        file.write(DEEP.encode() + b"\n")
    ledger = Ledger(LocalStore(tmp_path))
    assert [line.batch for line in ledger.read()] == [0]
    assert ledger.fold().differences()


def test_a_mark_with_a_number_of_a_thousand_digits_is_none() -> None:
    assert Mark.parse(b"A.main:a->b:7:0:2:" + b"9" * 5000) is None


def test_a_segment_whose_text_points_outside_is_refused_not_followed(tmp_path: Path) -> None:
    """It ended the process before: Arrow follows offsets that were never checked."""
    create_log(tmp_path, "name string")
    with LogWriter(tmp_path) as writer:
        writer.append(pa.table({"name": ["one", "two"]}))
    (path,) = (tmp_path / "p0").glob("*.arrow")
    good = path.read_bytes()
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 3, 6))
    assert good.count(offsets) == 1
    path.write_bytes(good.replace(offsets, b"".join(n.to_bytes(4, "little") for n in (0, 0x7FFFFFF0, 6))))
    with pytest.raises(SegmentError, match="is torn"):
        list(LogReader(tmp_path).read(0, 0, 2))


def test_a_refused_file_is_not_quoted_at_length() -> None:
    digits = "9" * 5000
    with pytest.raises(NetworkError) as refused:
        parse_network(NETWORK.replace("cpu: 1.0", f"cpu: x{digits}").replace("s1: {", f"s{digits}: {{"))
    assert len(str(refused.value)) < 4000
    assert all(len(str(problem)) < 600 for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("batches", b'"batches":1', b'"batches":{}'),
        ("batches", b"[370,5]", b"[1e999,5]"),
        ("batches", b'"through": 0', b'"through": 1e999'),
        ("audit-points", b'\\"at\\":', b'\\"to\\":'),
        ("audit-points", b'"position": ', b'"position": 99999999999999999999'),
        ("backfill-steps", b'"q"', b"5, 5"),
        ("shed-records", b"17", b"1e999"),
        ("places", b"s3a", b"\xff"),
    ],
)
def test_what_crashed_the_reader_of_a_file_is_refused(
    all_readers: dict[str, Reader], name: str, good: bytes, bad: bytes
) -> None:
    (example,) = [one for one in all_readers[name].corpus if good in one][:1]
    with pytest.raises(FloodwayError):
        all_readers[name].read(example.replace(good, bad))


@pytest.mark.parametrize("damage", ["hash", "place", "zeros"])
def test_a_damaged_index_of_tags_lets_no_batch_in_twice(all_readers: dict[str, Reader], damage: str) -> None:
    """A hash that was another one went unnoticed: the same number of records was there."""
    (good,) = all_readers["tag-indexes"].corpus
    flipped = {"hash": 3, "place": 8}
    bad = bytearray(good if damage in flipped else good[:-16] + bytes(16))
    if damage in flipped:
        bad[flipped[damage]] ^= 1
    with pytest.raises(FloodwayError, match="was made anew"):
        all_readers["tag-indexes"].read(bytes(bad))


@pytest.mark.slow
def test_a_million_inputs(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    result = fuzz.faults(Trial(1_000_000, seed, tmp_path))
    assert (result.tried, result.differences) == (1_000_000, []), seed
