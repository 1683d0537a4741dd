"""Shares by key in the loop of a shed, on a simulated job: no Spark, a clock that is told the time, real files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from floodway.control.registry import make_controller
from floodway.job.decision import Mode, write_mode
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import ShedFiles
from floodway.spark.shed.chooser import ShedSettings
from floodway.spark.shed.keys.key_shares import NULL_KEY, KeyShares
from floodway.spark.shed.keys.quotas import ALL_NULL, MOST_KEYS, NO_LARGE_KEY, Quotas
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.report import BatchReport
from floodway.units import PPM
from tests.oracles.max_min import max_min_shares
from tests.planning.test_planning_shares import points_of

SECOND = 1_000_000
NOISY = {0: 0.9} | dict.fromkeys(range(1, 100), 0.1 / 99)
"""A hundred tenants, one of which sends 90% of the load."""


@dataclass
class Tenants:
    """Micro-batches back to back; `parts` of a steady rate by key. A key k has the hash 1000 + k."""

    folder: Path
    parts: Mapping[int, float]
    rate: float = 15_000.0
    tuple_seconds: float = 0.0002
    mode: Mode = "enforce"
    weights: Mapping[int, float] = field(default_factory=dict)
    now_us: int = 1_700_000_000 * SECOND
    previous_us: int = 1_699_999_999 * SECOND
    batch: int = 0
    kept: list[dict[int, float]] = field(default_factory=list)
    """The part of its tuples that each key kept, by batch."""
    keeps: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        settings = ShedSettings(
            "job", 2.0, make_controller("batch", target_seconds=2.0), self.mode, salt=1, share_by="tenant"
        )
        keys = KeyShares({1000 + key: weight for key, weight in self.weights.items()})
        self.loop = ShedLoop(settings, ShedFiles(self.folder), clock_us=lambda: self.now_us, keys=keys)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            started = self.now_us
            entry = self.loop.control.table.at(started)
            quotas, keep_ppm = entry.quotas or Quotas(), entry.keep_at(started)
            offered = round(self.rate * (started - self.previous_us) / 1e6)
            counts = {1000 + key: round(part * offered) for key, part in self.parts.items()}
            changed, others = quotas.in_batch(keep_ppm, entry.keep_ppm)
            keeps = {key: dict(changed).get(key, others) for key in counts}
            enforced = entry.mode == "enforce"
            left = {key: count * keeps[key] / PPM for key, count in counts.items()}
            over = round(sum(counts[key] - left[key] for key in counts if keeps[key] < others))
            kept = round(sum(left.values())) if enforced else sum(counts.values())
            seconds = 0.3 + self.tuple_seconds * kept
            self.kept.append({key - 1000: left[key] / count for key, count in counts.items() if count})
            self.keeps.append(sum(left.values()) / sum(counts.values()))
            self.latencies.append((started - self.previous_us) / 2e6 + seconds)
            self.previous_us, self.now_us = started, started + round(seconds * 1e6)
            tracked = {at: counts.get(key, 0) for at, key in enumerate(quotas.keys, start=1)}
            points = points_of([key for key, count in counts.items() for _ in range(count)], 1000)
            self.loop.on_batch(
                BatchReport(
                    "q", "r1", self.batch, started, seconds, sum(counts.values()), kept, started,
                    entry.seq, keep_ppm, entry.mode, over=over, by_share=over if enforced else 0, key_points=points,
                    key_counts={0: sum(counts.values()) - sum(tracked.values()), **tracked},
                    key_name=None if quotas.asked is None else f"tenant {quotas.asked - 1000}",
                )
            )  # fmt: skip
            self.batch += 1


def fair(parts: Mapping[int, float], keep: float, weights: Mapping[int, float] | None = None) -> Any:
    """The part of its tuples that each key keeps, by the linear program; within 2%."""
    found = max_min_shares(keep, parts, weights or {})
    return pytest.approx({key: found[key] / part for key, part in parts.items()}, rel=0.02)


def test_the_one_who_sends_most_pays_alone(tmp_path: Path) -> None:
    job = Tenants(tmp_path / "job", NOISY)
    job.run(40)
    for kept, keep in zip(job.kept[10:], job.keeps[10:], strict=True):
        assert all(kept[key] >= 0.99 for key in range(1, 100))
        assert keep < 0.5
        assert kept == fair(NOISY, keep)
    assert sum(job.latencies[20:]) / 20 == pytest.approx(2.0, rel=0.15)
    ledger = Ledger(job.loop.files.store).fold()
    assert ledger.differences() == []
    dropped = ledger.total.by_place()["job"]
    assert dropped["share"] > 9 * dropped.get("shedder", 0)
    status = job.loop.files.read_status()
    assert status is not None and status.shed is not None
    noisy = next(one for one in status.keys if one.key == "tenant 0")
    assert noisy.share == pytest.approx(0.9, rel=0.01)
    assert noisy.keep < 0.5 and all(one.keep == 1.0 for one in status.keys if one != noisy)
    assert status.totals.dropped == dropped


def test_shares_of_many_sizes_are_those_of_the_linear_program(tmp_path: Path) -> None:
    sizes = {key: 1.0 / (key + 1) for key in range(100)}
    parts = {key: size / sum(sizes.values()) for key, size in sizes.items()}
    weights = {0: 3.0, 7: 2.0}
    # So many that a count, a whole number, is within 0.2% of each key's part.
    job = Tenants(tmp_path / "job", parts, 150_000.0, Tenants.tuple_seconds / 10.0, weights=weights)
    job.run(30)
    # Two batches whose keys are drawn and not yet counted follow the three that keep everything.
    for kept, keep in zip(job.kept[6:], job.keeps[6:], strict=True):
        assert kept == fair(parts, keep, weights)


@pytest.mark.parametrize("aimed", [0.05, 0.3, 0.9, 1.0])
def test_a_batch_that_moves_its_keep_shares_it_as_the_linear_program_does(aimed: float) -> None:
    """With a keep of 1, too: the batch after one in which a burst began is cut before anybody was told."""
    sizes = {key: 1.0 / (key + 1) for key in range(100)}
    parts = {key: size / sum(sizes.values()) for key, size in sizes.items()}
    weights = {0: 3.0, 7: 2.0}
    quotas = Quotas.fair(aimed, parts, 0.0, weights)
    for factor in (0.25, 0.31, 0.5, 0.77, 0.91, 1.0, 1.13, 1.25):
        keep = min(factor * aimed, 1.0)
        changed, others = quotas.in_batch(round(keep * PPM), round(aimed * PPM))
        kept = {key: dict(changed).get(key, others) / PPM for key in parts}
        assert sum(kept[key] * part for key, part in parts.items()) == pytest.approx(keep, rel=0.01)
        assert kept == fair(parts, keep, weights)


def test_a_key_that_begins_to_send_much_pays_soon(tmp_path: Path) -> None:
    even = dict.fromkeys(range(100), 0.01)
    job = Tenants(tmp_path / "job", even)
    job.run(20)
    assert max(job.kept[-1].values()) - min(job.kept[-1].values()) < 0.1
    job.parts = NOISY
    job.run(8)
    assert all(job.kept[-1][key] >= 0.99 for key in range(1, 100))


def test_a_million_keys_take_no_space_and_lose_least(tmp_path: Path) -> None:
    parts = {0: 0.6} | dict.fromkeys(range(1, 20001), 0.4 / 20000)
    job = Tenants(tmp_path / "job", parts, rate=30_000.0)
    job.run(16)
    quotas = job.loop.control.latest.quotas
    assert quotas is not None and len(quotas.keys) <= MOST_KEYS
    assert job.kept[-1][0] * 0.6 < 0.1 * job.keeps[-1]
    assert quotas.others_ppm > 5 * dict(zip(quotas.keys, quotas.keeps, strict=True))[1000]


@pytest.mark.parametrize(
    ("parts", "warning"),
    [(dict.fromkeys(range(5000), 1 / 5000), NO_LARGE_KEY), ({NULL_KEY - 1000: 0.995, 5: 0.005}, ALL_NULL)],
    ids=["too many", "null"],
)
def test_keys_that_make_no_difference_are_named_as_long_as_it_lasts(
    tmp_path: Path, parts: Mapping[int, float], warning: str
) -> None:
    job = Tenants(tmp_path / "job", parts)
    job.run(10)
    status = job.loop.files.read_status()
    assert status is not None and status.warnings == (warning,)
    assert list(job.kept[-1].values()) == pytest.approx([job.keeps[-1]] * len(parts), rel=0.02) or warning == ALL_NULL
    job.parts = NOISY
    job.run(10)
    status = job.loop.files.read_status()
    assert status is not None and status.warnings == ()


def test_observe_drops_nothing_and_says_who_would_pay(tmp_path: Path) -> None:
    job = Tenants(tmp_path / "job", NOISY, rate=8_000.0, mode="observe")
    job.run(12)
    status = job.loop.files.read_status()
    assert status is not None and status.shed is not None
    assert status.totals.dropped == {} and status.keep < 0.9
    assert status.shed.over > 0 and min(one.keep for one in status.keys) < 0.9


def test_a_restart_keeps_the_quotas(tmp_path: Path) -> None:
    job = Tenants(tmp_path / "job", NOISY)
    job.run(20)
    before = job.loop.control.latest.quotas
    job.start()
    assert job.loop.control.latest.quotas == before is not None
    job.run(1)
    assert all(job.kept[-1][key] >= 0.99 for key in range(1, 100))
    job.loop.keys = None  # the option was taken out of the code
    off = ShedLoop(job.loop.settings, job.loop.files, clock_us=lambda: job.now_us)
    assert off.control.latest.quotas is None


def test_off_keeps_everything_of_every_key(tmp_path: Path) -> None:
    job = Tenants(tmp_path / "job", NOISY)
    job.run(10)
    write_mode(job.loop.files.store, "off")
    job.run(3)
    quotas = job.loop.control.latest.quotas
    assert quotas is not None and {*quotas.keeps, quotas.others_ppm} == {PPM}
