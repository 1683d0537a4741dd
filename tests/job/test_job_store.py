"""A store on a disk: whole objects, one creator, durable, for the user's eyes alone; errors that say what to do."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from floodway.errors import InputError
from floodway.job.store.store import LocalStore, StoreError, checked_place, file_mode, local_folder, probe
from floodway.job.store.store_arrow import ArrowStore
from floodway.spark.session.stores import open_store
from tests.synced import note_syncs


def test_objects_are_written_read_listed_and_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "new" / "state")
    assert store.read("a.json") is None and store.names() == [] and store.modified("a.json") is None
    store.write("a.json", b"1")
    store.write("deep/b.json", b"2")
    store.write("a.json", b"3")
    assert store.read("a.json") == b"3"
    assert store.names() == ["a.json"] and store.names("deep") == ["deep/b.json"] and store.names("none") == []
    assert store.folders() == ["deep"] and store.folders("deep") == []
    assert store.modified("a.json") == (tmp_path / "new" / "state" / "a.json").stat().st_mtime
    store.remove("a.json")
    store.remove("a.json")
    assert store.names() == []


def test_of_many_creators_one_wins_and_its_object_is_whole(tmp_path: Path) -> None:
    won: list[bytes] = []
    start = threading.Barrier(8)

    def create(own: bytes) -> None:
        start.wait()
        if LocalStore(tmp_path).create("lease/1", own):
            won.append(own)

    threads = [threading.Thread(target=create, args=(bytes([65 + i]) * 5000,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert LocalStore(tmp_path).read("lease/1") == won[0]
    assert [path.name for path in (tmp_path / "lease").iterdir()] == ["1"], "drafts are gone"


def test_of_many_claims_one_wins_and_one_folder_is_left(tmp_path: Path) -> None:
    """Where a client cannot put conditionally; S3's also leaves the folder of a claim that was removed."""
    won: list[str] = []
    start = threading.Barrier(4)

    def create(own: int) -> None:
        store = ArrowStore(tmp_path.as_uri(), LocalFileSystem(), str(tmp_path))
        start.wait()
        for name in ("lease/1", "lease/1-2", "lease/2"):
            if store.create(name, bytes([65 + own]) * 5000):
                won.append(name)

    (tmp_path / "lease" / ".claims").mkdir(parents=True)
    dead = tmp_path / "lease" / ".claims" / "2-0123456789abcdef"
    dead.write_bytes(b"")
    os.utime(dead, (0, 0))
    threads = [threading.Thread(target=create, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == ["lease/1", "lease/1-2", "lease/2"]
    assert sorted(path.name for path in (tmp_path / "lease").iterdir()) == [".claims", "1", "1-2", "2"]
    assert list((tmp_path / "lease" / ".claims").iterdir()) == [dead]


def test_threads_that_replace_one_object_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Drafts named by the process alone were renamed away under each other: errors, and objects read as absent."""
    store, problems = LocalStore(tmp_path), list[object]()
    store.write("mode.json", b"A" * 100)

    def replace(letter: bytes) -> None:
        try:
            for _ in range(200):
                store.write("mode.json", letter * 100, durable=False)
                found = store.read("mode.json")
                if found is None or len(set(found)) != 1 or len(found) != 100:
                    problems.append(found)
        except StoreError as error:
            problems.append(error)

    threads = [threading.Thread(target=replace, args=(letter,)) for letter in (b"B", b"C", b"D")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_write_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = note_syncs(monkeypatch)
    (tmp_path / "there").mkdir()
    store = LocalStore(tmp_path / "there")
    store.write("a", b"1")
    assert synced == ["file", "folder there"]
    synced.clear()
    assert store.create("new/b", b"1")
    assert synced == ["folder there", "file", "folder new"]
    synced.clear()
    store.write("c", b"1", durable=False)
    assert synced == []


def test_a_write_is_given_up_after_all_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = note_syncs(monkeypatch)
    store = LocalStore(tmp_path)
    store.write("a", b"1")
    synced.clear()
    asked: list[list[str]] = []

    def too_late() -> bool:
        asked.append([*synced])
        return False

    assert not store.write("a", b"2", in_time=too_late)
    assert (store.read("a"), asked, [path.name for path in tmp_path.iterdir()]) == (b"1", [["file"]], ["a"])


def test_what_a_store_makes_is_the_users_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state" / "clicks")
    store.write("dropped/1.jsonl", b"a tuple")
    for folder in (store.folder.parent, store.folder, store.folder / "dropped"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path("dropped/1.jsonl").stat().st_mode) == 0o600


def test_a_folder_that_the_user_shares_holds_files_that_others_may_read(tmp_path: Path) -> None:
    """Executors of another user read the decision; whoever may enter the folder was chosen by its owner."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    assert file_mode(shared) == 0o640


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a//b", "a/../b"])
def test_a_name_stays_below_the_store(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name of an object"):
        LocalStore(tmp_path).read(name)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LocalStore(tmp_path / "file" / "state")
    with pytest.raises(
        StoreError, match=r"the state location file:.*/state cannot be written: Not a directory\. Check that"
    ):
        probe(store)


def test_a_folder_without_links_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some clouds, mounted: nothing could be made there that must not replace what is there."""

    def refused(path: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refused)
    with pytest.raises(StoreError, match=r"the state location .* cannot be written: Operation not permitted"):
        probe(LocalStore(tmp_path))


def test_a_read_only_folder_is_refused_at_the_start() -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        probe(LocalStore("/proc/self/floodway"))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("ftp://host/state", r"scheme 'ftp', which is not known here\. Use a folder, or one of hdfs:, s3a:"),
        ("s3a:///state", r"names no bucket or container\. Write s3a://NAME/path"),
    ],
)
def test_a_place_that_cannot_be_is_one_sentence(place: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_store(place)


def test_places_of_one_folder_are_one(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    assert {open_store(place).uri for place in (str(folder), f"{folder}/", folder.as_uri())} == {folder.as_uri()}
    assert local_folder(folder.as_uri()) == folder
    assert checked_place("s3a://bucket/state/") == "s3a://bucket/state"
