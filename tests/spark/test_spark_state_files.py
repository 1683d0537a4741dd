"""Small files of a running job: whole or not there, durable only where that means something."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from floodway.errors import InputError
from floodway.job.decision import read_mode, write_mode
from floodway.job.places import ShedFiles
from floodway.job.store.store import LocalStore, StoreError, write_atomically


def test_a_status_is_replaced_without_a_flush_and_a_wish_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write_atomically(tmp_path / "status.json", "{}", durable=False)
    assert flushed == [] and (tmp_path / "status.json").read_text() == "{}\n"
    write_mode(LocalStore(tmp_path), "off")
    assert len(flushed) == 2, "the file and its folder"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mode.json", "status.json"]


def test_a_shed_and_a_network_have_the_same_mode_file(tmp_path: Path) -> None:
    assert read_mode(LocalStore(tmp_path)) is None
    write_mode(ShedFiles(tmp_path).store, "observe")
    assert read_mode(LocalStore(tmp_path)) == ShedFiles(tmp_path).read_mode() == "observe"
    (tmp_path / "mode.json").write_text("[]")
    with pytest.raises(StoreError, match=r"mode\.json is damaged"):
        read_mode(LocalStore(tmp_path))
    with pytest.raises(InputError, match="'on' is not known"):
        write_mode(LocalStore(tmp_path), "on")


def test_threads_that_write_one_file_do_not_race(tmp_path: Path) -> None:
    def write(mode: str) -> None:
        for _ in range(100):
            write_mode(LocalStore(tmp_path), mode)
            assert read_mode(LocalStore(tmp_path)) in ("off", "enforce")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("off", "enforce")))
    assert [path.name for path in tmp_path.iterdir()] == ["mode.json"]
