"""An accuracy at the source: groups keep what their bounds need, over many trials; and what is refused."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.job.options.flags import arguments, parsed
from floodway.job.options.options import JobOptions
from floodway.network.file import parse_network
from floodway.spark.measure.estimates import sum_estimate
from floodway.spark.query.key_drops import key_drops
from floodway.spark.source.keys import KeyDrops
from floodway.units import PPM
from tests.effort import tries
from tests.spark.test_spark_source_keys import Clicks, admitted, cut

TARGET = "sum(page) by tenant within 0.05 share 0.75"
NETWORK = """
version: 1
name: shop
streams: {clicks: {max_rate: 10, schema: "page string, price double"}}
nodes: {A: {cpu: 1.0}}
operators: {a: {node: A, from: clicks, cost: 1.0}}
outputs: {q: {from: a}}
"""


def clicks(seed: int, *, few: bool) -> tuple[Clicks, Counter[str]]:
    """2% of the groups with 80% of the value, or with 20% of it; the values are the pages."""
    rng = random.Random(seed)
    heavy, light = (2, 98) if few else (1, 49)
    rows: list[tuple[str | None, int | None]] = []
    for group in range(heavy + light):
        size = (4000 if few else 3000) if group < heavy else (40 if few else 200)
        scale = 250 if (group < heavy) == few else 100
        rows += [(f"g{group}", rng.randrange(scale // 2, scale)) for _ in range(size)]
    rng.shuffle(rows)
    truth: Counter[str] = Counter()
    for group_name, value in rows:
        truth[str(group_name)] += value or 0
    return Clicks(rows[::2], rows[1::2]), truth


@pytest.mark.parametrize("few", [True, False], ids=["few groups", "many groups"])
def test_groups_that_carry_the_total_are_as_accurate_as_asked(few: bool) -> None:
    right = within = trials = 0
    logs = tries(40)
    for seed in range(logs):
        log, truth = clicks(seed, few=few)
        batch = cut(log, 50_000, KeyDrops(accuracy=TARGET), salt=seed)
        assert batch.keys is not None
        groups, bound, needed, allowed = batch.keys.accuracy
        assert bound <= 50_000 and allowed == 50_000 < needed < 900_000 and batch.keys.over == {}
        rows = admitted(log, batch)
        assert batch.account().kept == len(rows) and batch.account().share == 0
        for name, total in truth.most_common(groups):
            mine = [row for row in rows if row["tenant"] == name]
            weights = np.array([row["_weight"] for row in mine])
            estimate = sum_estimate(np.array([float(row["page"]) for row in mine]), weights)
            trials += 1
            right += estimate.holds(total)
            within += abs(estimate.value - total) <= 0.05 * total
    assert right >= 0.93 * trials and within >= 0.93 * trials and trials >= 2 * logs


def test_latency_first_keeps_what_it_may_and_says_how_wide_the_bounds_are() -> None:
    log, _ = clicks(1, few=True)
    batch = cut(log, 50_000, KeyDrops(accuracy=f"{TARGET} prefer latency"))
    assert batch.keys is not None
    _, bound, needed, allowed = batch.keys.accuracy
    assert bound > 50_000 and needed > allowed
    assert batch.account().kept == pytest.approx(0.05 * batch.account().offered, rel=0.2)


def test_all_tuples_may_be_one_group() -> None:
    log, _ = clicks(1, few=True)
    batch = cut(log, 10_000, KeyDrops(accuracy="count(*) within 0.05"))
    assert batch.keys is not None and batch.keys.share_by == "" and batch.keys.accuracy[0] == 1
    assert 10_000 < batch.keys.others_ppm < 400_000 and batch.keys.accuracy[1] <= 50_000
    assert cut(log, PPM, KeyDrops(accuracy="count(*) within 0.05")).keys is None


def test_flags_are_read_and_written_again() -> None:
    given = parsed("run", {"accuracy": ("clicks=sum(price) by page within 5%", "orders=count(*) prefer latency")})
    assert {name: str(one) for name, one in given["accuracy"].items()} == {
        "clicks": "sum(price) by page",
        "orders": "count(*)",
    }
    again = [text.removeprefix("--accuracy=") for text in arguments(JobOptions(**given), panels=["Drops and losses"])]
    assert parsed("run", {"accuracy": tuple(again)}) == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("clicks=max(price)", "it is one tuple's value, and that tuple may be dropped"),
        ("price", "is not STREAM=TARGET"),
        ("taps=count(*)", "--accuracy: no stream is called 'taps'"),
        ("clicks=sum(price) by user", "--accuracy: streams.clicks has no column 'user'"),
        ("clicks=sum(page)", "page is of type string, which has no sum"),
        ("clicks=sum(price * 2)", "streams.clicks has no column 'price * 2'"),
    ],
)
def test_what_cannot_be_had_is_refused(given: str, message: str) -> None:
    def asked() -> None:
        options = JobOptions(**parsed("run", {"accuracy": (given,)}))
        key_drops(options.checked(parse_network(NETWORK)), options, {})

    with pytest.raises(InputError) as caught:
        asked()
    assert message in str(caught.value)


def test_it_excludes_what_decides_otherwise() -> None:
    network = parse_network(NETWORK)
    for other, message in (
        ({"share_by": "clicks=page"}, "--share-by and --accuracy both decide"),
        ({"drop": "range"}, "--accuracy and --drop range exclude each other"),
        ({"lossless": True}, "--accuracy and --lossless exclude each other"),
    ):
        with pytest.raises(InputError) as caught:
            JobOptions(**parsed("run", {"accuracy": ("clicks=count(*)",), **other})).checked(network)
        assert message in str(caught.value)
