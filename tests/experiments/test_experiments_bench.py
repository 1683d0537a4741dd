"""Benchmarks do the work they claim to do; how quick they are is never asserted."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from floodway.errors import InputError
from floodway.experiments.bench import network_fixed_cost
from floodway.experiments.bench import planning_fit as fit
from floodway.experiments.bench import planning_large as large
from floodway.experiments.bench import spark_drop_cpu as drop_cpu
from floodway.experiments.bench import spark_shed_options as shed_options
from floodway.experiments.bench.network_fixed_cost import PATHS
from floodway.experiments.bench.planning_exact import WarmSolver, chains, overloaded_rates, walk_of_rates
from floodway.experiments.bench.registry import BENCHMARKS, GROUPS, choose, load
from floodway.experiments.bench.result import each, interleave, portions_of
from floodway.experiments.bench.spark_common import NARROW, WIDE, BenchError, Frame, Workbench
from floodway.experiments.bench.spark_limit import COST_SECONDS, BatchLatencies, line
from floodway.experiments.bench.spark_source import PLAIN, PlainSource
from floodway.network.file import load_network, parse_network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.spark.log import LogReader, create_log
from floodway.spark.source import register
from floodway.units import PPM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestRegistry:
    def test_all_groups_and_ids_can_be_chosen_and_loaded(self) -> None:
        assert choose([], kafka=True) == choose(GROUPS) == list(BENCHMARKS)
        of_loads = {f"shed-{kind}-{load}" for kind in ("kafka", "step") for load in ("1.3", "2", "4")}
        assert set(BENCHMARKS) - set(choose([])) == {"kafka-source", "shed-price", *of_loads}
        assert all(callable(load(identifier, servers="127.0.0.1:9092")) for identifier in BENCHMARKS)

    def test_order_is_kept_and_nothing_runs_twice(self) -> None:
        chosen = choose(["spark-source", "spark", "spark-source"])
        assert chosen[0] == "spark-source" and len(chosen) == len(set(chosen))

    @pytest.mark.parametrize("identifier", [known for known, entry in BENCHMARKS.items() if entry.broker])
    def test_kafka_needs_a_broker(self, identifier: str) -> None:
        with pytest.raises(InputError, match=r"needs a broker.*--kafka HOST:PORT"):
            load(identifier)

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(InputError, match="Did you mean spark-source"):
            choose(["spark-sorce"])

    @pytest.mark.parametrize("identifier", ["planning-fit-build", "planning-fit-memory", "planning-lp-1000"])
    def test_a_result_carries_the_id_it_was_asked_for(self, identifier: str) -> None:
        done: list[float] = []
        result = load(identifier)(long=False, progress=done.append)
        assert result.id == identifier
        assert result.ours > 0 and result.peer > 0
        assert done == sorted(done) and done[-1] == pytest.approx(1.0)


class TestNetwork:
    def test_the_network_is_the_examples(self) -> None:
        found = load_network(Path(__file__).parents[2] / "examples" / "networks" / "shop.yaml")
        assert parse_network(network_fixed_cost.SHOP) == found

    def test_the_peer_writes_what_the_network_delivers(self, tmp_path: Path) -> None:
        logs = {output: str(create_log(tmp_path / output, network_fixed_cost.SCHEMA).path) for output in PATHS}
        costs = dict.fromkeys(["enrich", "dashboard", "billing", "settle"], 0.0)
        now = pa.array([0, 1, 2], pa.timestamp("us", "UTC"))
        rows = pa.record_batch({"stream": ["clicks", "orders", "clicks"], "value": [1.0, 2.0, 3.0], "_arrival": now})
        assert sum(1 for _ in network_fixed_cost.by_hand(costs, logs)(iter([rows]))) == 3
        held = {output: sum(LogReader(path).end_positions().values()) for output, path in logs.items()}
        assert held == {"live": 2, "invoices": 2, "revenue": 1}


class TestTiming:
    def test_ours_and_the_peer_take_turns_on_the_same_work(self) -> None:
        calls: list[tuple[str, int]] = []
        now = iter(range(100))
        pairs = interleave(
            each(lambda item: calls.append(("ours", item))),
            each(lambda item: calls.append(("peer", item))),
            portions_of([1, 2, 3, 4, 5], 2),
            clock=lambda: float(next(now)),
        )
        assert [name for name, _ in calls] == ["ours"] * 2 + ["peer"] * 4 + ["ours"] * 2
        assert [item for name, item in calls if name == "ours"] == [1, 2, 3, 4]
        assert pairs.ours == pairs.peer == (1.0, 1.0) and pairs.ratio == 1.0


class TestPlanningWork:
    def test_both_sides_of_exact_find_the_same_optimum(self) -> None:
        program = Program(chains(4))
        planner, solver = ExactPlanner(program), WarmSolver(program)
        rates = overloaded_rates(program, 200, 8.0)
        assert len(rates) > 100
        for at in rates:
            assert planner.optimum(at) == pytest.approx(program.score(solver.flows(at)), rel=1e-9)

    def test_the_walk_moves_in_small_steps_and_repeats(self) -> None:
        program = Program(chains(3))
        path = walk_of_rates(program, 500)
        assert all(np.array_equal(a, b) for a, b in zip(path, walk_of_rates(program, 500), strict=True))
        moves = [np.abs(np.log(b / a)).max() for a, b in pairwise(path)]
        assert 0 < max(moves) < 0.4

    def test_sizes_are_those_the_goals_speak_of(self) -> None:
        assert fit.planner().size == fit.ROWS == 43_758
        wide = large.wide_network()
        assert len(wide.drop_locations) == 1000 and len(wide.nodes) == 100
        tree = large.tree_network()
        assert len(tree.nodes) == 1000 and len(tree.streams) == 2

    def test_a_childs_memory_is_its_own_and_not_the_parents(self) -> None:
        ballast = np.ones(40_000_000)  # 320 MB that a child would inherit through ru_maxrss
        assert fit.peak_megabytes() > ballast.nbytes / 2**20
        assert fit._peak_of_child("import") < ballast.nbytes / 2**20


class TestSparkArithmetic:
    def test_cpu_of_a_dropped_tuple_is_what_is_left_after_the_kept_ones(self) -> None:
        processed, dropped = 4e-6, 1e-7
        keep = drop_cpu.KEEP_PPM / PPM
        cut = 0.2 + drop_cpu.TUPLES * (keep * processed + (1 - keep) * dropped)
        seconds = {"tiny": [0.2], "processed": [0.2 + drop_cpu.TUPLES * processed], "range": [cut], "hash": [cut]}
        assert drop_cpu._per_tuple(seconds) == pytest.approx((4.0, 0.1, 0.1))
        with pytest.raises(BenchError, match="no CPU time"):
            drop_cpu._per_tuple({**seconds, "processed": [0.1]})

    def test_a_batch_has_a_fixed_cost_and_a_cost_a_tuple_which_noise_cannot_push_below_the_busy_wait(self) -> None:
        assert line({200: 0.8, 800: 2.0}) == pytest.approx((0.4, 0.002))
        assert line({200: 0.8, 800: 0.7}) == pytest.approx((0.8 - 200 * COST_SECONDS, COST_SECONDS))

    def test_latency_is_weighted_by_tuples_and_only_of_the_span_asked_for(self) -> None:
        seen = BatchLatencies([(1.0, 100, 9.0), (5.0, 10, 1.0), (6.0, 30, 2.0), (9.0, 5, 7.0)])
        found = seen.after(4.0, 8.0)
        assert found["mean latency"] == pytest.approx(1.75)
        assert found["tuples"] == 40 and found["tuples/s"] == 10 and found["last latency"] == 2.0
        with pytest.raises(BenchError, match="no batch"):
            seen.after(20.0, 30.0)

    def test_an_option_is_judged_by_what_it_adds_turn_by_turn(self) -> None:
        tuples = shed_options.LARGE - shed_options.SMALL
        plain = shed_options.VariantTimes([100.0, 200.0, 100.0], [400.0, 500.0, 400.0], [0.5] * 6)
        cheap = shed_options.VariantTimes([104.0, 205.0, 103.0], [404.0 + 0.2e-3 * tuples, 505.0, 403.0], [0.5] * 6)
        costly = shed_options.VariantTimes(
            [104.0, 205.0, 103.0], [x + 1e-3 * tuples for x in (404.0, 505.0, 403.0)], [0.4] * 6
        )
        result = shed_options.result({"plain": plain, "max_age": cheap, "keep_rare": costly})
        assert result.detail["max_age"]["ms per batch"] == 4.0
        assert result.detail["max_age"]["ms per batch, spread"] == [3.0, 5.0]
        assert result.detail["max_age"]["µs per tuple, spread"] == [0.0, 0.2] and result.detail["max_age"]["holds"]
        assert result.detail["keep_rare"]["µs per tuple"] == 1.0 and not result.detail["keep_rare"]["holds"]
        assert not result.holds and (result.ours, result.peer) == (104.0, 100.0)


@pytest.mark.spark
class TestOnSpark:
    @pytest.mark.slow
    @pytest.mark.parametrize("option", shed_options.OPTIONS)
    def test_every_option_of_shed_runs_and_drops_half(self, spark: SparkSession, tmp_path: Path, option: str) -> None:
        register(spark)
        bench = Workbench(spark, tmp_path)
        options = shed_options.OPTIONS[option]
        milliseconds, kept = shed_options.run(bench, bench.log(500 * 12, NARROW), 500, options)
        # The first batches are cut before the first decision is there, and keep all.
        assert milliseconds > 0.0 and 0.4 < kept < 0.95

    def test_the_plain_source_reads_every_tuple_as_the_floodway_source_does(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        register(spark)
        spark.dataSource.register(PlainSource)
        bench = Workbench(spark, tmp_path)
        for schema in (WIDE, NARROW):
            log = bench.log(25_000, schema, segment=7_000)
            found: dict[str, list[tuple[int, float]]] = {}
            for source in ("floodway", PLAIN):
                rows: list[tuple[int, float]] = []

                def keep(batch: Frame, number: int, rows: list[tuple[int, float]] = rows) -> None:
                    rows.extend(tuple(row) for row in batch.select("id", "value").collect())

                frame = bench.stream(log, source, maxTuplesPerBatch="10000")
                batches = bench.drain(frame, keep)
                assert sum(batch.rows for batch in batches) == 25_000 and len(batches) == 3
                found[source] = sorted(rows)
            assert len(found[PLAIN]) == 25_000
            assert found["floodway"] == found[PLAIN]

    @pytest.mark.slow
    def test_queries_of_the_drop_benchmark_run(self, spark: SparkSession, tmp_path: Path) -> None:
        register(spark)
        bench = Workbench(spark, tmp_path)
        log = bench.log(2_000)
        kept: list[int] = []

        def check(batch: Frame, number: int) -> None:
            drop_cpu.count_tuples(batch, number)
            drop_cpu.parse_json(batch, number)
            parsed = batch.selectExpr(f"from_json(body, '{drop_cpu.JSON_SCHEMA}') AS b").where("b.price IS NULL")
            kept.extend((batch.count(), parsed.count()))

        drop_cpu._run(bench, log, check, PPM, "hash")
        assert kept == [2_000, 0]
        drop_cpu._run(bench, log, check, 0, "range")
        assert kept[2:] == [0, 0]
