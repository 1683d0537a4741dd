"""The mode of a running job where the operator's wish is absent, damaged, out of reach or taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from floodway.job.decision import MODE, OperatorMode, write_mode
from floodway.job.store.store import LocalStore, Store
from floodway.job.store.store_arrow import ArrowStore

DAMAGED = [b"", b"\xff", b'{"mode": "of', b'{"mode": "OFF"}', b'{"mode": null}', b"null", b"[]", b'"off"']


@pytest.fixture(params=["folder", "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return LocalStore(tmp_path)
    return ArrowStore(tmp_path.as_uri(), LocalFileSystem(), str(tmp_path))


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_wish_leaves_the_last_mode_in_force_and_is_said(store: Store, damaged: bytes) -> None:
    mode = OperatorMode(store, "enforce", "clicks")
    write_mode(store, "off")
    assert mode.look() == "off"
    store.write(MODE, damaged)
    assert [mode.look() for _ in range(3)] == ["off"] * 3 and mode.wish() == "off" and mode.errors == 1
    (said,) = mode.warnings
    assert f"{store.uri}/{MODE} is damaged" in said and "floodway set" in said and said.endswith("the mode stays off")
    write_mode(store, "enforce")
    assert mode.look() == "enforce" and mode.warnings == ()


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_job_that_starts_with_a_damaged_wish_drops_nothing(
    store: Store, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store.write(MODE, damaged)
    mode = OperatorMode(store, "enforce", "clicks")
    assert [mode.look(), mode.look()] == ["observe", "observe"]
    assert mode.warnings[0].endswith("everything is kept, the mode is observe")
    assert [record.levelname for record in caplog.records] == ["ERROR"] and mode.warnings[0] in caplog.text


def test_the_mode_of_the_code_holds_while_nobody_has_asked_and_stays_when_the_file_is_damaged(store: Store) -> None:
    mode = OperatorMode(store, "enforce", "clicks")
    assert mode.look() == "enforce" and mode.wish() is None
    store.write(MODE, b"?")
    assert mode.look() == mode.wish() == "enforce"
    store.remove(MODE)
    assert mode.look() == "enforce" and mode.wish() is None and mode.warnings == ()


def test_a_wish_that_cannot_be_reached_is_not_absent(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write_mode(store, "off")
    mode = OperatorMode(store, "enforce", "clicks")
    mode.look()
    (tmp_path / MODE).unlink()
    (tmp_path / MODE).mkdir()
    assert mode.look() == "off" and "cannot be read" in mode.warnings[0]


def test_the_wish_of_an_earlier_state_does_not_replace_one_that_is_there(store: Store) -> None:
    mode = OperatorMode(store, "enforce", "clicks")
    store.write(MODE, b"?")
    mode.restore("enforce")
    assert store.read(MODE) == b"?" and mode.look() == "observe"
    store.remove(MODE)
    mode.restore("off")
    assert mode.look() == "off"
