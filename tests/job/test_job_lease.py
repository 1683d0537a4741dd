"""One process per state on stores without locks: expiry by the store's clock, one winner, no write without a lease."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from floodway.errors import InputError
from floodway.job.store import lease as leases
from floodway.job.store.lease import TTL_SECONDS, Lease, LeasedStore, LeaseLostError, hold, take
from floodway.job.store.store import InTime, LocalStore, StoreError, always
from tests.job.ledgers import Objects
from tests.patience import PATIENCE_SECONDS


class World(Objects):
    """A store with a clock of its own, and the steady clock of the processes that use it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = 1_000.0
        self.skew = 0.0
        """How far the store's clock is from everybody's."""
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.after_create: Callable[[], object] | None = None
        self._written: dict[str, float] = {}

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        written = super().write(name, data, durable=durable, in_time=in_time)
        self._written[name] = self.now + self.skew
        return written

    def create(self, name: str, data: bytes) -> bool:
        made = super().create(name, data)
        if made:
            self._written[name] = self.now + self.skew
        if self.after_create is not None:
            self.after_create()
        return made

    def modified(self, name: str) -> float | None:
        return self._written.get(name)

    def sleep(self, seconds: float) -> None:
        """Time passes, and what is due happens."""
        self.now += seconds
        for due, act in list(self.later):
            if due <= self.now:
                self.later.remove((due, act))
                act()

    def lease(self) -> Lease:
        """Another process asks for the lease."""
        return Lease(self, monotonic=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Every lease in here is of this process: none counts as dead because of its number."""
    monkeypatch.setattr(leases, "_is_dead", lambda body: False)
    return World(tmp_path)


def test_a_holder_that_is_alive_is_not_replaced(world: World) -> None:
    first = world.lease()
    world.later.append((world.now + 5.0, first.renew))
    with pytest.raises(InputError, match=rf"in use by .*, process {os.getpid()}\. Stop that job first"):
        world.lease()
    first.check()


@pytest.mark.parametrize("skew", [0.0, 86_400.0, -86_400.0])
def test_a_holder_that_is_gone_is_replaced_after_the_time_to_live(world: World, skew: float) -> None:
    world.skew = skew
    first = world.lease()
    began = world.now
    second = world.lease()
    assert TTL_SECONDS <= world.now - began <= TTL_SECONDS + 2.0
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLostError, match=r"was taken over by .*, process \d+\. Stop one of the two jobs"):
        first.check()
    second.check()


def test_a_released_lease_is_had_at_once(world: World) -> None:
    first = world.lease()
    first.release()
    began = world.now
    assert world.lease().epoch == 2 and world.now == began


def test_nothing_is_written_without_the_lease(world: World) -> None:
    store = LeasedStore(world, world.lease())
    store.write("a", b"1")
    assert store.create("b", b"1")
    world.lease()
    for act in (
        lambda: store.write("a", b"2"),
        lambda: store.create("c", b"2"),
        lambda: store.remove("b"),
    ):
        with pytest.raises(LeaseLostError):
            act()
    assert world.read("a") == b"1" and world.read("b") == b"1" and world.read("c") is None
    assert store.read("a") == b"1" and store.names() == ["a", "b"]


def test_a_holder_that_comes_back_in_the_last_moment_keeps_the_other_out(world: World) -> None:
    """It was held up for longer than the time to live, and renews while another one creates the next epoch."""
    first = world.lease()
    world.after_create = lambda: Objects.write(world, f"lease/{first.epoch:012d}.json", b'{"renewal": 99}')
    with pytest.raises(InputError, match="in use by"):
        world.lease()
    assert json.loads(world.read("lease/000000000002.json") or b"")["released"]


def test_of_many_that_ask_at_once_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "TTL_SECONDS", PATIENCE_SECONDS)  # a thread that is held up is not gone
    got: list[int] = []
    refused = threading.Semaphore(0)

    def ask() -> None:
        try:
            lease = Lease(Objects(tmp_path))
        except InputError:
            refused.release()
            return
        got.append(lease.epoch)
        for _ in range(3):
            while not refused.acquire(timeout=0.1):
                lease.renew()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [1]


def test_a_process_of_this_machine_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from floodway.job.store.lease import hold;"
        "from tests.job.ledgers import Objects; hold(Objects(Path(sys.argv[1])));"
        "print('held', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=PIPE, stdout=PIPE, text=True, env=environment
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        other.kill()
    naps: list[float] = []
    assert Lease(Objects(tmp_path), sleep=naps.append).epoch == 2 and naps == []


def test_a_folder_is_held_once_per_process_and_by_one(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "job")
    assert hold(store) is store and hold(LocalStore(tmp_path / "job")) is store
    held = hold(Objects(tmp_path / "other"))
    assert isinstance(held, LeasedStore) and hold(Objects(tmp_path / "other")) is held


def test_what_killed_writers_left_is_removed_by_the_next_holder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for name in ("control.json", "ledger/id"):
        with pytest.raises(KeyboardInterrupt):
            _killed_while_writing(store, name)
    (tmp_path / ".hidden").write_text("somebody else's")
    drafts = [path for path in tmp_path.rglob(".*") if path.is_file() and path.name != ".hidden"]
    assert len(drafts) == 2
    take(tmp_path / "writer.lock", "").close()
    assert all(path.exists() for path in drafts), "they may still be written"
    for path in drafts:
        os.utime(path, (0, 0))
    take(tmp_path / "writer.lock", "").close()
    assert not any(path.exists() for path in drafts)
    assert (tmp_path / ".hidden").exists()


def _killed_while_writing(store: LocalStore, name: str) -> None:
    """As by SIGKILL: nothing runs any more, whatever should be done in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        store.write(name, b"new", in_time=_killed)


def _killed() -> bool:
    raise KeyboardInterrupt


def test_a_folder_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There two drivers could not be told from one, and no line of a ledger could be appended."""

    def unsupported(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(StoreError, match=r"cannot be locked: No locks available\. Give a place on storage with locks"):
        hold(LocalStore(tmp_path / "state"))
