"""The campaign's kinds with few points; and that each would see the fault that it looks for."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from floodway.errors import InputError
from floodway.experiments.chaos import disks, namespaces, networks, packets, partner_packets
from floodway.experiments.chaos.clocks import driver_clocks, partner_clocks, plane_clocks, set_clock
from floodway.experiments.chaos.clocks.driver_clocks import Wish, against_mode
from floodway.experiments.chaos.disk_kinds import KINDS, KeptFiles
from floodway.experiments.chaos.federation_world import BrokenPromiseError
from floodway.experiments.chaos.registry import FAULTS, choose, load, share
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.clocks import SteadyClock
from floodway.job.ledger.ledger import LedgerLine, Reason


def test_every_fault_can_be_loaded() -> None:
    assert all(callable(load(fault)) for fault in FAULTS.values())


def test_points_are_divided_within_a_kind() -> None:
    shares = share(FAULTS.values(), 60)
    for kind in {fault.kind for fault in FAULTS.values()}:
        of_kind = [shares[fault.id] for fault in FAULTS.values() if fault.kind == kind]
        assert abs(sum(of_kind) - 60) <= len(of_kind)


@pytest.mark.parametrize("kind", sorted({fault.kind for fault in FAULTS.values()}))
def test_the_name_of_a_kind_chooses_all_of_it(kind: str) -> None:
    of_kind = [fault for fault in FAULTS.values() if fault.kind == kind]
    assert choose([kind]) == of_kind
    assert all(choose([fault.id]) == [fault] for fault in of_kind), "an id chooses one"


def test_an_unknown_fault_names_the_nearest() -> None:
    with pytest.raises(InputError, match="disks"):
        choose(["disk"])


def test_clocks_that_are_set_do_not_part_agents(tmp_path: Path) -> None:
    result = plane_clocks.faults(Trial(12, 3, tmp_path))
    assert (result.tried, result.holds, result.differences) == (12, True, [])


def test_partners_whose_clocks_are_set_leave_one_owner(tmp_path: Path) -> None:
    if (missing := set_clock.missing()) is not None:
        pytest.skip(f"NO CLOCK TO SET: {missing}")
    result = partner_clocks.faults(Trial(1, 67, tmp_path))
    assert (result.tried, result.holds, result.differences) == (1, True, [])
    assert "clock of " in json.dumps(result.to_dict())


def test_a_lease_that_was_taken_from_the_living_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partner_clocks.ClockWorld, "watch_seconds", 0.0)
    world = partner_clocks.ClockWorld(tmp_path)
    for name in ("start", "wait", "feed"):
        monkeypatch.setattr(world, name, lambda *_, **__: None)
    lease = world.store.claim("f0", "A", after=0, now=0.0)
    world.store.claim("f0", "B", after=1, now=lease.until + 5.0, lost=lease)
    with pytest.raises(BrokenPromiseError, match="taken from an owner that lived"):
        world.survives(partner_clocks.Clocks({}, {}, ()))


def test_timers_on_a_wall_clock_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the clock that agents had before, the same points show agents that wait for hours."""
    monkeypatch.setattr(SteadyClock, "now", lambda clock: clock._wall_clock())
    assert not plane_clocks.faults(Trial(40, 3, tmp_path)).holds


def test_a_clock_is_set_for_a_process_and_its_children_alone(tmp_path: Path) -> None:
    if (missing := set_clock.missing()) is not None:
        pytest.skip(f"NO CLOCK TO SET: {missing}")
    clock = set_clock.SetClock(tmp_path, drift_ppm=-1000)
    print_times = "import subprocess, time; print(time.time()); subprocess.run(['date', '+%s'])"
    for ahead in (-86_400.0, 86_400.0):
        clock.step(ahead)
        before = clock.now_us() / 1e6
        done = subprocess.run(
            [sys.executable, "-uc", print_times], env={**os.environ, **clock.variables}, capture_output=True, check=True
        )
        own, of_child = map(float, done.stdout.split())
        assert before <= own <= clock.now_us() / 1e6
        assert int(before) <= of_child <= clock.now_us() / 1e6


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_whose_clock_is_set_obeys_its_mode(tmp_path: Path) -> None:
    if (missing := set_clock.missing()) is not None:
        pytest.skip(f"NO CLOCK TO SET: {missing}")
    result = driver_clocks.faults(Trial(8, 3, tmp_path))
    print(f"8 points, seed 3: {result.detail['points']}")
    assert (result.tried, result.holds, result.differences) == (8, True, [])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("name", "points"), [("node-clocks", 8), ("participant-clocks", 2)])
def test_agents_whose_clocks_are_set_obey_and_leave_one_owner(name: str, points: int, tmp_path: Path) -> None:
    if (missing := set_clock.missing()) is not None:
        pytest.skip(f"NO CLOCK TO SET: {missing}")
    result = load(FAULTS[name])(Trial(points, 3, tmp_path))
    print(f"{points} points, seed 3: {result.detail['points']}")
    assert (result.tried, result.holds, result.differences) == (points, True, [])


def test_batches_against_the_mode_would_be_found() -> None:
    wishes = [Wish(-1, "enforce"), Wish(20, "off"), Wish(40, "enforce")]

    def found(batch: int, mode: str, kept: int) -> list[str]:
        line = LedgerLine("q", batch, "s", Reason.SHEDDER.value, 500, kept, 500 - kept, mode=mode, keep_ppm=170_000)
        return against_mode(wishes, [line])

    assert found(21, "enforce", 85) == []  # it had begun when the switch was thrown
    assert found(24, "off", 500) == []
    assert "4 batches after off was asked for" in found(24, "enforce", 85)[0]
    assert "in off dropped 415" in found(30, "off", 85)[0]
    assert "dropped nothing" in found(50, "enforce", 500)[0]
    assert "has the mode off" in found(50, "off", 500)[0]


def test_damaged_disks_lose_and_double_nothing(tmp_path: Path) -> None:
    points = len(KINDS) * 4
    result = disks.faults(Trial(points, 5, tmp_path))
    assert (result.tried, result.holds, result.differences) == (points, True, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_refused_in_words_and_leaves_no_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    tight, result = random.Random(), FaultResult("disks")
    monkeypatch.setattr(tight, "choice", lambda rooms: rooms[1])
    disks._full(kind, tmp_path, 3, tight, result)
    assert (result.holds, result.differences) == (True, [])


def test_a_read_only_disk_is_refused_in_words(tmp_path: Path) -> None:
    if (missing := namespaces.missing()) is not None:
        pytest.skip(f"NO READ-ONLY DISK: {missing}")
    result = FaultResult("disks")
    for kind, count in product(KINDS, (1, 9)):  # of one entry none is there before
        folder = tmp_path / f"{kind}-{count}"
        folder.mkdir()
        disks._read_only(kind, folder, count, random.Random(kind), result)
    assert (result.holds, result.differences) == (True, [])


def test_an_entry_that_a_read_only_disk_acknowledges_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "make_read_only", lambda folder: None)
    result = FaultResult("disks")
    disks._read_only("ledger", tmp_path, 9, random.Random(1), result)
    assert any("were acknowledged" in text for text in result.differences)


def test_a_file_that_forgets_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(KeptFiles):
        def held(self) -> Counter[int]:
            return Counter({number: count for number, count in super().held().items() if number != 1})

        def put(self, number: int) -> None:
            self._lines.append([{"number": number}])

    monkeypatch.setattr(disks, "KINDS", {"lines": Forgetful})
    result = disks.faults(Trial(3, 5, tmp_path))
    assert result.lost and result.doubled


@pytest.mark.parametrize(
    "fault",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in packets.FAULTS[:-1]), packets.FAULTS[-1], "all"],
)
def test_agents_on_machines_whose_packets_suffer_come_to_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if (missing := namespaces.network_missing()) is not None:
        pytest.skip(f"NO NETWORK NAMESPACES: {missing}")
    monkeypatch.setattr(packets, "FAULTY_SECONDS", 1.0)
    monkeypatch.setattr(packets, "FAULTS", packets.FAULTS if fault == "all" else (fault,))
    result = packets.faults(Trial(1, 7, tmp_path))
    assert (result.tried, result.holds, result.differences) == (1, True, [])
    assert sum(result.detail["met"].values()) > result.detail["met"]["none"], "no packet met a fault"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*packets.FAULTS, "all"])
def test_partners_whose_packets_suffer_have_one_owner_and_one_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if (missing := namespaces.network_missing()) is not None:
        pytest.skip(f"NO NETWORK NAMESPACES: {missing}")
    monkeypatch.setattr(partner_packets, "FAULTS", packets.FAULTS if fault == "all" else (fault,))
    result = partner_packets.faults(Trial(1, 7, tmp_path))
    assert (result.tried, result.holds, result.differences) == (1, True, [])
    assert sum(result.detail["met"].values()) > result.detail["met"]["none"], "no packet met a fault"


def test_partners_that_stay_cut_off_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (missing := namespaces.network_missing()) is not None:
        pytest.skip(f"NO NETWORK NAMESPACES: {missing}")
    monkeypatch.setattr(partner_packets, "MOMENTS", ("offers",))
    monkeypatch.setattr(partner_packets.PacketWorld, "faulty_seconds", 0.0)
    monkeypatch.setattr(partner_packets.PacketWorld, "step_seconds", 5.0)
    monkeypatch.setattr(packets.Switch, "_pass_on", lambda switch, packet: None)
    assert not partner_packets.faults(Trial(1, 7, tmp_path)).holds


def test_agents_that_stay_cut_off_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (missing := namespaces.network_missing()) is not None:
        pytest.skip(f"NO NETWORK NAMESPACES: {missing}")
    monkeypatch.setattr(packets, "HEAL_SECONDS", 5.0)
    monkeypatch.setattr(packets, "FAULTY_SECONDS", 0.0)
    monkeypatch.setattr(packets.Switch, "_pass_on", lambda switch, packet: None)
    assert not packets.faults(Trial(1, 7, tmp_path)).holds


def test_a_network_that_loses_and_doubles_messages_is_survived(tmp_path: Path) -> None:
    result = networks.faults(Trial(2, 7, tmp_path))
    assert (result.tried, result.holds, result.differences) == (2, True, [])
    assert sum(result.detail["met"].values()) > result.detail["met"].get("none", 0), "no message met a fault"
