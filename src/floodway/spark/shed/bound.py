"""A shed in one session: the drop on a stream, the counts around it, and the loop that they are reported to.

The plan stays the same for ever, so the state of what comes after it does too. Every micro-batch finds the decision in
force (`control_columns.py`), counts its tuples, marks each with its fate, filters, and counts what is left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.job.ledger.facts import Rule, write_rule
from floodway.job.places import ShedFiles, note_place
from floodway.job.store.store import probe
from floodway.spark.query.drops import WEIGHT, column, hash_ppm, identity_columns, time_us
from floodway.spark.session.stores import is_connect, runs_here
from floodway.spark.shed.checks import TIMESTAMP, check_columns, stands_on_source
from floodway.spark.shed.chooser import ShedSettings
from floodway.spark.shed.control_columns import (
    DECIDED,
    ENFORCED,
    EPOCHS,
    KEEP,
    SALT,
    SKIP,
    THRESHOLD,
    TIE,
    TIME,
    epoch_keep,
    live_row,
    with_control,
)
from floodway.spark.shed.listener import attach, metric_name, offered_name
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.open_batches import open_checkpoint
from floodway.spark.shed.options import ShedOptions, names_of
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.spark.shed.keys.key_shares import KeyShares
    from floodway.spark.shed.window_drop import WindowDrop

SLOT = "_floodway_slot"
UTILITY = "_floodway_utility"
COUNTED_UTILITY = "_floodway_counted_utility"
IN_GAPS = "_floodway_in_gaps"
STALE = "_floodway_stale"
BEHIND = "_floodway_behind"
RANK = "_floodway_rank"
FATE = "_floodway_fate"
KEPT = "_floodway_kept"
ARRIVAL = "_arrival"


@dataclass(frozen=True)
class BoundShed:
    """A shed in one session: the drop, the counts around it, and the loop that they are reported to."""

    spark: SparkSession
    options: ShedOptions
    settings: ShedSettings
    files: ShedFiles
    loops: list[ShedLoop] = field(default_factory=list, repr=False, compare=False)

    @property
    def utility(self) -> str | Column | None:
        """The column or expression by which tuples are worth keeping."""
        return self.options.utility

    @property
    def window(self) -> WindowDrop | None:
        """The windows to shed whole."""
        return self.options.window

    @property
    def metric_key(self) -> str:
        """Names this shed among a query's metrics."""
        return self.files.key(self.settings.name)

    @property
    def _compared(self) -> tuple[object, ...]:
        """All that was asked for, comparable: a Column compares to a Column, hence its text."""
        options = self.options
        utility = None if options.utility is None else str(options.utility)
        columns = (utility, names_of(options.key), names_of(options.identity), options.arrival, options.timestamp)
        return (self.settings, *columns, options.window, options.side_output or 0, bool(options.ask_executors))

    def _new_loop(self, df: DataFrame) -> ShedLoop:
        server, executors, present = None, None, None
        if is_connect(self.spark):
            from floodway.spark.shed.server_clock import server_clock

            server = server_clock(self.spark)
        elif not runs_here(self.spark):
            from floodway.spark.shed.executors import executor_count

            present = executor_count(self.spark)
        if self.options.ask_executors:
            from floodway.spark.shed.executors import executor_requests

            executors = executor_requests(self.spark, f"shed {self.settings.name!r}: ask_executors=")
        return ShedLoop(
            self.settings,
            self.files,
            clock_us=server or (lambda: time.time_ns() // 1000),
            server=server,
            open_journal=lambda checkpoint: open_checkpoint(checkpoint, self.spark),
            keys=self._key_shares(df),
            executors=executors,
            present=present or (lambda: None),
        )

    def _key_shares(self, df: DataFrame) -> KeyShares | None:
        if self.settings.share_by is None:
            return None
        from floodway.spark.shed.keys.key_columns import hashed_weights
        from floodway.spark.shed.keys.key_shares import KeyShares

        return KeyShares(hashed_weights(df, self.settings.share_by, self.settings.weights))

    def __call__(self, df: DataFrame) -> DataFrame:
        """The stream with the drop on it and `_weight` added."""
        check_columns(df, self.settings.name, self.options)
        probe(self.files.store)
        spark = df.sparkSession
        make = partial(self._new_loop, df)
        loop = attach(spark, self.metric_key, self._compared, make, on_source=stands_on_source(df))
        row = live_row(spark, self.files.control_uri)
        if row is not None:
            loop.serve(row.put)
        self.loops.append(loop)
        note_place(self.settings.name, self.files.store.uri)
        write_rule(loop.files.store, self._rule(df))
        weight = self._weight(df).alias(WEIGHT)
        return self._kept(df).select(*[column(name) for name in df.columns if name != WEIGHT], weight)

    def _kept(self, df: DataFrame) -> DataFrame:
        """What passes the drop, counted before and after it.

        Where Spark counts it writes out whole rows, and compiles what follows apart. So tuples are counted where they
        are whole rows anyhow, as the source has them, and where only the kept ones are left. An option that tells of
        what it drops counts once, beside the fate of each tuple.
        """
        name, asked = metric_name(self.metric_key), self._option_metrics(df)
        offered = fn.count(fn.lit(1)).alias("offered")
        # The same for all tuples of a batch. The greatest of a number costs less than the first of anything.
        decision = [fn.max(DECIDED).alias("decided"), fn.max(TIME).alias("batch_time_us")]
        at = self.options.arrival or (ARRIVAL if ARRIVAL in df.columns else None)
        if asked:
            arrival = [] if at is None else [fn.avg(fn.when(fn.col(KEPT), time_us(at))).alias("arrival_us")]
            kept = fn.count_if(KEPT).alias("kept")
            inputs = [of.alias(name) for name, of in self._metric_inputs(df).items()]
            told = self._marked(df).select("*", *inputs)
            return told.observe(name, offered, kept, *decision, *arrival, *asked).filter(KEPT)
        arrival = [] if at is None else [fn.avg(time_us(at)).alias("arrival_us")]
        passed = self._marked(df.observe(offered_name(self.metric_key), offered)).filter(KEPT)
        return passed.observe(name, fn.count(fn.lit(1)).alias("kept"), *decision, *arrival)

    @property
    def _table_options(self) -> list[str]:
        """Which parts of a decision beside its keep the stream needs."""
        settings = self.settings
        asked = {
            "threshold": settings.by_utility,
            "tie_ppm": settings.by_utility,
            "quotas": settings.has_quotas,
            "rare_ppm": settings.rare_by is not None,
            "skip": settings.skip_when_lag is not None,
            "epochs": settings.window is not None,
        }
        return [name for name, is_asked in asked.items() if is_asked]

    @property
    def _timestamp(self) -> str:
        return self.options.timestamp or TIMESTAMP

    def _rule(self, df: DataFrame) -> Rule:
        """What decides beside the decision, for reading dropped tuples again."""
        return Rule(
            hashed=() if self.window is not None else self._hashed(df),
            by_utility=self.utility is not None,
            utility=self.utility if isinstance(self.utility, str) else None,
            floor_ppm=self.settings.floor_ppm,
            window=self.settings.window,
            time_column=None if self.window is None else self.window.time_column,
            salt=self.settings.salt,
            timestamp=None if self.settings.max_age_us is None else self._timestamp,
            share_by=self.settings.share_by,
            keep_rare=self.settings.keep_rare,
            rare_by=self.settings.rare_by,
            accuracy_by=self.settings.accuracy_by,
        )

    def kept_windows(self, df: DataFrame, window_column: str) -> DataFrame:
        """Of an aggregate's windows those that are whole."""
        shape = self.settings.window
        if shape is None:
            return df
        from floodway.spark.shed.window_drop import emits

        whole = emits(
            shape,
            window_column,
            lambda start: epoch_keep("emit_ppm", start),
            fn.lit(self.settings.salt),
        )
        # Whether a window is let out is for the batch that emits it to say. Spark would ask the batches that its tuples
        # come in, before the aggregate, if nothing in the condition kept it from moving a filter.
        here = fn.when(fn.spark_partition_id() >= 0, whole).otherwise(fn.lit(False))
        kept = with_control(df, self.files.control_uri, self._table_options).filter(here)
        return kept.select(*[column(name) for name in df.columns])

    def _marked(self, df: DataFrame) -> DataFrame:
        """The stream with the entry in force, the fate of every tuple, and whether it is kept."""
        return self._fated(df).withColumn(KEPT, ~fn.col(ENFORCED) | fn.col(FATE))

    def _fated(self, df: DataFrame) -> DataFrame:
        """The stream with the entry in force, the slot, the utility and the fate of every tuple."""
        found = with_control(df, self.files.control_uri, self._table_options)
        salt = fn.coalesce(fn.col(SALT), fn.lit(0).cast("bigint"))
        if self.window is not None:
            from floodway.spark.shed.window_drop import passes

            # A table that cannot be read passes everything; a window older than its epochs passes nothing.
            whole = fn.col(EPOCHS)["known"].isNull()
            by_window = passes(
                self.window.shape,
                time_us(self.window.time_column),
                lambda start: epoch_keep("pass_ppm", start),
                fn.lit(self.settings.salt),
            )
            return found.withColumn(FATE, whole | by_window)
        if self.settings.max_age_us is not None:
            from floodway.spark.shed.recovery.fate import is_stale

            before_us = fn.col(TIME) - self.settings.max_age_us
            found = found.withColumn(STALE, is_stale(self._timestamp, before_us))
        if self.settings.skip_when_lag is not None:
            from floodway.spark.shed.recovery.fate import is_behind

            of_topic = fn.call_function("element_at", fn.col(SKIP), fn.col("topic"))
            found = found.withColumn(BEHIND, is_behind(of_topic))
        if self.settings.rare_by is not None:
            from floodway.spark.shed.recovery.fate import rank

            # The first of their keys are kept; what else there is room for is a smaller share of the others.
            found = found.withColumn(RANK, rank(self.settings.rare_by, self._skipped, self.settings.keep_rare))
        slotted = found.withColumn(SLOT, hash_ppm(df, salt, self._hashed(df)))
        if self.settings.share_by is not None:
            from floodway.spark.shed.keys.key_columns import key_hash, with_quota

            slotted = with_quota(slotted, key_hash(fn.expr(self.settings.share_by)))
        elif self.settings.accuracy_by is not None:
            from floodway.spark.shed.keys.key_columns import group_hash, with_quota

            slotted = with_quota(slotted, group_hash(self.settings.accuracy_by))
        below = fn.col(SLOT) < self._keep
        if self.utility is None:
            return slotted.withColumn(FATE, self._fresh(fn.coalesce(below, fn.lit(True))))
        from floodway.spark.shed.utility import utility_column

        given = fn.expr(self.utility) if isinstance(self.utility, str) else self.utility
        valued = slotted.withColumn(UTILITY, utility_column(given))
        threshold = fn.col(THRESHOLD)
        above = fn.col(UTILITY) > threshold
        tied = (fn.col(UTILITY) == threshold) & (fn.col(SLOT) < fn.col(TIE))
        fate = fn.when(threshold.isNull(), below).otherwise(above | tied | (fn.col(SLOT) < self.settings.floor_ppm))
        return valued.withColumn(FATE, self._fresh(fn.coalesce(fate, fn.lit(True))))

    def _fresh(self, fate: Column) -> Column:
        """The fate of a tuple: a stale one goes in any case, one of the first of its key stays."""
        return ~self._skipped & (fate if self.settings.rare_by is None else self._first | fate)

    @property
    def _first(self) -> Column:
        """Whether a tuple is one of the first of its key."""
        from floodway.spark.shed.keys.rare import FIRST

        return fn.col(RANK) == FIRST

    @property
    def _stale(self) -> Column:
        return fn.lit(False) if self.settings.max_age_us is None else fn.col(STALE)

    @property
    def _skipped(self) -> Column:
        """Whether a tuple goes whatever the keep is."""
        return self._stale if self.settings.skip_when_lag is None else self._stale | fn.col(BEHIND)

    @property
    def _keep(self) -> Column:
        """The share in ppm of the tuples like this one that is kept."""
        if not self.settings.has_quotas:
            return fn.col(KEEP)
        from floodway.spark.shed.keys.key_columns import QUOTA

        return fn.col(QUOTA)

    def _hashed(self, df: DataFrame) -> tuple[str, ...]:
        return identity_columns(df, names_of(self.options.key) or names_of(self.options.identity))

    def _metric_inputs(self, df: DataFrame) -> dict[str, Column]:
        """Columns that metrics are of. In a metric Spark interprets what it could compile, and what a metric refers to
        is written out beside every tuple: a decision with a hundred keys, say.
        """
        inputs: dict[str, Column] = {}
        if self.utility is not None:
            inputs[COUNTED_UTILITY] = fn.when(~self._skipped, fn.col(UTILITY))
        if self.settings.share_by is not None:
            from floodway.spark.shed.keys.key_columns import key_inputs

            inputs |= key_inputs(self.settings.share_by, ~self._skipped)
        if self.settings.accuracy is not None:
            from floodway.spark.shed.keys.key_columns import sample_inputs

            inputs |= sample_inputs(self.settings.accuracy, self._hashed(df), ~self._skipped)
        if self.window is not None:
            from floodway.spark.shed.window_drop import in_gaps

            event_us, salt = time_us(self.window.time_column), fn.lit(self.settings.salt)
            unemitted = in_gaps(self.window.shape, event_us, lambda start: epoch_keep("emit_ppm", start), salt)
            inputs[IN_GAPS] = fn.col(EPOCHS)["known"].isNotNull() & unemitted
        return inputs

    def _option_metrics(self, df: DataFrame) -> list[Column]:
        """What the options ask to know of all tuples, the dropped ones too."""
        metrics: list[Column] = []
        if self.utility is not None:
            from floodway.spark.shed.utility import utility_summary

            metrics.append(utility_summary(fn.col(COUNTED_UTILITY)).alias("utilities"))
        if self.settings.max_age_us is not None:
            metrics.append(fn.count_if(STALE).alias("stale"))
        if self.settings.share_by is not None:
            from floodway.spark.shed.keys.key_columns import OVER, key_metrics

            metrics += key_metrics()
            metrics.append(fn.count_if(fn.col(OVER) & ~self._skipped & ~fn.col(FATE)).alias("over"))
        if self.settings.accuracy is not None:
            from floodway.spark.shed.keys.key_columns import sample_metrics

            metrics += sample_metrics()
        if self.settings.rare_by is not None:
            from floodway.spark.shed.keys.rare import UNKNOWN

            metrics.append(fn.count_if(self._first).alias("first"))
            metrics.append(fn.count_if(fn.col(RANK) == UNKNOWN).alias("unknown"))
        if self.settings.skip_when_lag is not None:
            metrics.append(fn.count_if(fn.col(BEHIND) & ~self._stale).alias("behind"))
        if self.window is not None:
            metrics.append(fn.max(time_us(self.window.time_column)).alias("event_us"))
            metrics.append(fn.count_if(IN_GAPS).alias("in_gaps"))
        if self.options.side_output:
            dropped = ~fn.col(KEPT)
            # The rows with the least hash: a sample of fixed size that needs no more memory than itself.
            order = fn.when(
                dropped, fn.xxhash64(*[column(c) for c in identity_columns(df, names_of(self.options.identity))])
            )
            text = fn.when(dropped, fn.to_json(fn.struct(*[column(name) for name in df.columns])))
            metrics.append(fn.min_by(text, order, self.options.side_output).alias("dropped_tuples"))
        return metrics

    def _weight(self, df: DataFrame) -> Column:
        before = column(WEIGHT).cast("double") if WEIGHT in df.columns else fn.lit(1.0)
        if self.window is not None:
            return before
        ppm = fn.lit(float(PPM))
        weight = ppm / fn.greatest(self._keep, fn.lit(1))
        if self.utility is not None:
            # What is above the threshold stands for itself; what is below is kept, and estimated, by the floor alone.
            utility, threshold = fn.col(UTILITY), fn.col(THRESHOLD)
            tie = fn.greatest(fn.col(TIE), fn.lit(max(self.settings.floor_ppm, 1)))
            by_tie = fn.when(utility > threshold, 1.0).when(utility == threshold, ppm / tie)
            by_value = by_tie.otherwise(ppm / max(self.settings.floor_ppm, 1))
            weight = fn.when(threshold.isNull(), weight).otherwise(by_value)
        if self.settings.rare_by is not None:
            weight = fn.when(self._first, 1.0).otherwise(weight)
        return before * fn.when(fn.col(ENFORCED), weight).otherwise(fn.lit(1.0))
