"""`floodway.shed`: one line that protects an existing streaming job, whatever its source.

    clicks.transform(floodway.shed("clicks", target_latency="2s"))

adds a drop whose rate follows the latency, without a restart. The plan stays the same for ever (so does the state of
what comes after it): every micro-batch reads the decision in force from the control table and keeps a tuple by the
hash of its identity, so a replay repeats it. Survivors carry `_weight` = 1/keep.

Around the drop exact counts are observed; a listener in the driver turns them into the next decision, a ledger line
and a status (`shed_loop.py`). Files and their formats: `shed_state.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

from pyspark import __version__ as pyspark_version
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.control.base import Controller
from floodway.errors import InputError
from floodway.job.places import note_place
from floodway.job.shed_state import ShedFiles, checked_name
from floodway.job.store.store import probe
from floodway.spark.query.drops import WEIGHT, column, hash_ppm, identity_columns
from floodway.spark.session.stores import is_connect
from floodway.spark.shed.checks import TIMESTAMP, check_columns
from floodway.spark.shed.control_columns import (
    ENFORCED,
    KEEP,
    MODE,
    SALT,
    SEQ,
    TABLE,
    THRESHOLD,
    TIE,
    TIME,
    epoch_keep,
    with_control,
)
from floodway.spark.shed.control_table import PPM
from floodway.spark.shed.fate import Rule, is_stale, write_rule
from floodway.spark.shed.key_columns import OVER, QUOTA, hashed_weights, key_metrics, with_quota
from floodway.spark.shed.key_shares import KeyShares
from floodway.spark.shed.listener import attach, metric_name
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.open_batches import open_checkpoint
from floodway.spark.shed.options import ShedOptions, names_of, refuse_unknown
from floodway.spark.shed.place import place_files, setting
from floodway.spark.shed.plans import stands_on_source
from floodway.spark.shed.settings import ShedSettings
from floodway.spark.shed.utility import utility_column, utility_summary
from floodway.spark.shed.window_drop import WindowDrop, emits, passes, time_us

SLOT = "_floodway_slot"
UTILITY = "_floodway_utility"
STALE = "_floodway_stale"
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
        return metric_key(self.settings.name, self.files)

    @property
    def _compared(self) -> tuple[object, ...]:
        """All that was asked for, comparable: a Column compares to a Column, hence its text."""
        options = self.options
        utility = None if options.utility is None else str(options.utility)
        columns = (utility, names_of(options.key), names_of(options.identity), options.arrival, options.timestamp)
        return (self.settings, *columns, options.window, options.side_output or 0)

    def _new_loop(self, df: DataFrame) -> ShedLoop:
        share_by, weights = self.settings.share_by, self.settings.weights
        return ShedLoop(
            self.settings,
            self.files,
            clock_us=lambda: time.time_ns() // 1000,
            open_journal=lambda checkpoint: open_checkpoint(checkpoint, self.spark),
            keys=None if share_by is None else KeyShares(hashed_weights(df, share_by, weights)),
        )

    def __call__(self, df: DataFrame) -> DataFrame:
        """The stream with the drop on it and `_weight` added."""
        check_columns(df, self.settings.name, self.options)
        probe(self.files.store)
        spark = df.sparkSession
        make = partial(self._new_loop, df)
        loop = attach(spark, self.metric_key, self._compared, make, on_source=stands_on_source(df))
        self.loops.append(loop)
        note_place(self.settings.name, self.files.store.uri)
        write_rule(loop.files.store, self._rule(df))
        kept = fn.col(FATE) | ~fn.coalesce(fn.col(ENFORCED), fn.lit(False))
        marked = self._marked(df).withColumn(KEPT, kept)
        counted = marked.observe(metric_name(self.metric_key), *self._counts(df))
        weight = self._weight(df).alias(WEIGHT)
        return counted.filter(KEPT).select(*[column(name) for name in df.columns if name != WEIGHT], weight)

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
        )

    def kept_windows(self, df: DataFrame, window_column: str) -> DataFrame:
        """Of an aggregate's windows those that are whole."""
        shape = self.settings.window
        if shape is None:
            return df
        whole = emits(
            shape,
            window_column,
            lambda start: epoch_keep("emit_ppm", start),
            fn.lit(self.settings.salt),
        )
        kept = with_control(df, self.files.control_uri).filter(whole)
        return kept.select(*[column(name) for name in df.columns])

    def _marked(self, df: DataFrame) -> DataFrame:
        """The stream with the entry in force, the slot, the utility and the fate of every tuple."""
        found = with_control(df, self.files.control_uri)
        salt = fn.coalesce(fn.col(SALT), fn.lit(0).cast("bigint"))
        if self.window is not None:
            # A table that cannot be read passes everything; a window older than its epochs passes nothing.
            whole = fn.col(TABLE).isNull() | fn.col(TABLE)["epochs"].isNull()
            by_window = passes(
                self.window.shape,
                time_us(self.window.time_column),
                lambda start: epoch_keep("pass_ppm", start),
                fn.lit(self.settings.salt),
            )
            return found.withColumn(FATE, whole | by_window)
        if self.settings.max_age_us is not None:
            before_us = fn.col(TIME) - self.settings.max_age_us
            found = found.withColumn(STALE, is_stale(self._timestamp, before_us))
        slotted = found.withColumn(SLOT, hash_ppm(df, salt, self._hashed(df)))
        if self.settings.share_by is not None:
            slotted = with_quota(slotted, self.settings.share_by)
        below = fn.col(SLOT) < self._keep
        if self.utility is None:
            return slotted.withColumn(FATE, self._fresh(fn.coalesce(below, fn.lit(True))))
        given = fn.expr(self.utility) if isinstance(self.utility, str) else self.utility
        valued = slotted.withColumn(UTILITY, utility_column(given))
        threshold = fn.col(THRESHOLD)
        above = fn.col(UTILITY) > threshold
        tied = (fn.col(UTILITY) == threshold) & (fn.col(SLOT) < fn.col(TIE))
        fate = fn.when(threshold.isNull(), below).otherwise(above | tied | (fn.col(SLOT) < self.settings.floor_ppm))
        return valued.withColumn(FATE, self._fresh(fn.coalesce(fate, fn.lit(True))))

    def _fresh(self, fate: Column) -> Column:
        """The fate of a tuple that is not stale; a stale one goes in any case."""
        return fate if self.settings.max_age_us is None else ~fn.col(STALE) & fate

    @property
    def _keep(self) -> Column:
        """The share in ppm of the tuples like this one that is kept."""
        return fn.col(KEEP if self.settings.share_by is None else QUOTA)

    def _hashed(self, df: DataFrame) -> tuple[str, ...]:
        return identity_columns(df, names_of(self.options.key) or names_of(self.options.identity))

    def _counts(self, df: DataFrame) -> list[Column]:
        """Counted before the drop, in one observation: each costs every tuple."""
        metrics = [
            fn.count(fn.lit(1)).alias("offered"),
            fn.count_if(KEPT).alias("kept"),
            fn.count_if(FATE).alias("would_keep"),
            fn.max(TIME).alias("batch_time_us"),
            fn.max(SEQ).alias("seq"),
            fn.max(KEEP).alias("keep_ppm"),
            fn.max(MODE).alias("mode"),
        ]
        if self.utility is not None:
            utility = fn.col(UTILITY)
            counted = utility if self.settings.max_age_us is None else fn.when(~fn.col(STALE), utility)
            metrics.append(utility_summary(counted).alias("utilities"))
        if self.settings.max_age_us is not None:
            metrics.append(fn.count_if(STALE).alias("stale"))
            metrics.append(fn.count_if(fn.col(STALE) & ~fn.col(KEPT)).alias("skipped"))
        if self.settings.share_by is not None:
            counts = fn.lit(True) if self.settings.max_age_us is None else ~fn.col(STALE)
            metrics += key_metrics(self.settings.share_by, counts)
            metrics.append(fn.count_if(fn.col(OVER) & counts & ~fn.col(FATE)).alias("over"))
            metrics.append(fn.count_if(fn.col(OVER) & counts & ~fn.col(KEPT)).alias("by_share"))
        if self.window is not None:
            metrics.append(fn.max(time_us(self.window.time_column)).alias("event_us"))
        if self.options.side_output:
            dropped = ~fn.col(KEPT)
            # The rows with the least hash: a sample of fixed size that needs no more memory than itself.
            order = fn.when(
                dropped, fn.xxhash64(*[column(c) for c in identity_columns(df, names_of(self.options.identity))])
            )
            text = fn.when(dropped, fn.to_json(fn.struct(*[column(name) for name in df.columns])))
            metrics.append(fn.min_by(text, order, self.options.side_output).alias("dropped_tuples"))
        arrival = self.options.arrival or (ARRIVAL if ARRIVAL in df.columns else None)
        if arrival is not None:
            metrics.append(fn.avg(fn.when(fn.col(KEPT), time_us(arrival))).alias("arrival_us"))
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
        return before * fn.when(fn.col(ENFORCED), weight).otherwise(fn.lit(1.0))


@dataclass(frozen=True)
class Shedder:
    """What was asked of one shed, to be given to `DataFrame.transform`; made by `shed`.

    It is bound when it is applied: then the session is known, and with it the settings and the place of the state.
    """

    name: str
    options: ShedOptions
    _bound: list[BoundShed] = field(default_factory=list, repr=False, compare=False)

    def __call__(self, df: DataFrame) -> DataFrame:
        """The stream with the drop on it and `_weight` added."""
        if not df.isStreaming:
            raise InputError(
                f"shed {self.name!r} was given a DataFrame that is not a stream",
                hint="Use df.sample for batch data.",
            )
        return self.bind(df.sparkSession)(df)

    def kept_windows(self, window_column: str = "window") -> Callable[[DataFrame], DataFrame]:
        """For after the aggregate, with `window=`: lets only whole windows out."""
        if self.options.window is None:
            raise InputError(f"shed {self.name!r} does not drop windows", hint="Give it window=WindowDrop(...).")
        return lambda df: self.bind(df.sparkSession).kept_windows(df, window_column)

    def bind(self, spark: SparkSession) -> BoundShed:
        """The shed with the session's settings, and its state where the session's executors see it."""
        if is_connect(spark) and pyspark_version.startswith("3."):
            raise InputError(
                f"shed {self.name!r} cannot hear of its batches through Spark Connect {pyspark_version}: listeners run "
                "on the server there",
                hint="Use a Classic session, or Spark 4.0 or later.",
            )
        if not is_connect(spark):
            refuse_unknown([key for key, _ in spark.sparkContext.getConf().getAll()])
        options = self.options.completed(self.name, lambda key: setting(spark, key)).checked(self.name)
        if options.side_output and tuple(map(int, spark.version.split(".")[:2])) < (4, 2):
            raise InputError(
                f"shed {self.name!r}: side_output= needs Spark 4.2 or later, this is {spark.version}",
                hint="Leave it out: older ones cannot take a sample of fixed size.",
            )
        known = self._bound[-1] if self._bound else None
        if known is None or known.spark is not spark or known.options != options:
            files = place_files(spark, self.name, options.state_dir)
            self._bound.append(BoundShed(spark, options, options.settings(self.name), files))
        return self._bound[-1]

    @property
    def settings(self) -> ShedSettings:
        """What the loop works with; before it is applied, as far as the code says."""
        return self._bound[-1].settings if self._bound else self.options.settings(self.name)

    @property
    def files(self) -> ShedFiles:
        """The state; before it is applied, where it would lie without a session."""
        return self._bound[-1].files if self._bound else place_files(None, self.name, self.options.state_dir)

    @property
    def metric_key(self) -> str:
        """Names this shed among a query's metrics."""
        return metric_key(self.name, self.files)

    @property
    def loop(self) -> ShedLoop:
        """The running loop; there is one once the shed was applied to a stream."""
        loops = [loop for bound in self._bound for loop in bound.loops]
        if not loops:
            raise InputError(f"shed {self.name!r} is not applied to a stream yet", hint="Use df.transform(shed) first.")
        return loops[-1]


def metric_key(name: str, files: ShedFiles) -> str:
    """Names a shed among a query's metrics: one name may be in use at several places."""
    return f"{name}.{crc32(files.store.uri.encode()):08x}"


def shed(
    name: str,
    *,
    target_latency: str | float | None = None,
    mode: str | None = None,
    controller: str | Controller[Any] | None = None,
    options: Mapping[str, object] | None = None,
    headroom: float | None = None,
    utility: str | Column | None = None,
    floor: float | None = None,
    key: str | Sequence[str] | None = None,
    share_by: str | None = None,
    weights: Mapping[str, float] | None = None,
    identity: str | Sequence[str] | None = None,
    arrival: str | None = None,
    window: WindowDrop | None = None,
    seed: int | None = None,
    side_output: int | None = None,
    expires_after: str | float | None = None,
    shed_after: str | float | None = None,
    max_age: str | float | None = None,
    timestamp: str | None = None,
    state_dir: str | None = None,
) -> Shedder:
    """A drop that keeps the mean latency of a streaming job at `target_latency`; for `DataFrame.transform`.

    `target_latency` may be a percentile's instead: "p95 < 3s".

    - `name`: what `floodway set` and `floodway top` know it by; one a stream.
    - `mode`: `observe` (decide and report, drop nothing), `enforce` or `off`. Installing drops nothing: an
      operator turns it on by `floodway set NAME --mode enforce`, which wins, also after a restart.
    - `controller`, `options`: a law of `floodway.control` by name with its options, or an instance, which is told
      the target with every batch; `headroom` scales the target that it is given.
    - A column `_weight` that the stream has is multiplied by 1/keep, and has to be a number.
    - `utility`: a column or expression; the most valuable tuples are kept, ties broken by hash.
    - `floor`, with `utility`: the share of the least valuable tuples that is kept however little there is time for, so
      that counts and sums by `_weight` are unbiased for them too. Without it what is never kept cannot be estimated.
    - `key`: columns whose values are kept or dropped whole.
    - `share_by`: a column or expression, `"tenant"`: each value gets a fair share of what fits, by `weights`
      (`{"gold": 3}`, else 1). Who sends most loses first; who stays below its share loses nothing.
    - `identity`: columns that tell tuples apart; left out: `_id`, Kafka's (topic, partition, offset), or all.
    - `arrival`: the timestamp column from which latency counts (`_arrival` if there is one). Left out, tuples
      are taken to arrive evenly between two batches, which is true of sources that hand over all they have;
      with a backlog that a read limit holds back in the source, give it.
    - `window`: shed whole windows (`WindowDrop`); one query a shed.
    - `side_output`: that many dropped tuples of every batch, as JSON lines, under `dropped`.
    - `expires_after`: how long a decision holds that the driver does not renew ("60s"; "never"): after that the batches
      keep everything again. With `window` it holds for ever.
    - `shed_after`: how long an overload lasts before anything is dropped ("90s"): time for an autoscaler, which may
      follow `floodway_capacity_needed_ratio`. The source holds what waits meanwhile.
    - `max_age`: tuples that are older when their batch begins ("10m") are skipped, by the column `timestamp` (Kafka's).
    - `state_dir`: the folder or URI (`hdfs:`, `s3a:`, …) that its state lies below; else see `place.py`.

    What is left out here may stand in Spark's settings, as `spark.floodway.target_latency` (`options.py`).
    """
    given = ShedOptions(
        *(target_latency, mode, controller, options, headroom, utility, floor, key, share_by, weights, identity),
        *(arrival, window, seed, side_output, expires_after, shed_after, max_age, timestamp, state_dir),
    )
    return Shedder(checked_name(name), given.checked(name))
