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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from zlib import crc32

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import NumericType

from floodway.control.base import Controller
from floodway.control.percentile import Percentile
from floodway.control.registry import controllers, make_controller
from floodway.errors import InputError
from floodway.job.shed_state import ShedFiles, checked_mode, shed_files
from floodway.job.targets import Target
from floodway.spark.query.drops import WEIGHT, column, hash_ppm, identity_columns
from floodway.spark.shed.control_columns import (
    CONTROL,
    ENFORCED,
    EPOCHS,
    KEEP,
    MODE,
    SALT,
    SEQ,
    THRESHOLD,
    TIE,
    TIME,
    epoch_keep,
    with_control,
)
from floodway.spark.shed.control_table import PPM
from floodway.spark.shed.fate import Rule, write_rule
from floodway.spark.shed.listener import attach, metric_name
from floodway.spark.shed.loop import ShedLoop, ShedSettings
from floodway.spark.shed.plans import stands_on_source
from floodway.spark.shed.utility import utility_column, utility_summary
from floodway.spark.shed.window_drop import WindowDrop, emits, passes, time_us

SLOT = "_floodway_slot"
UTILITY = "_floodway_utility"
FATE = "_floodway_fate"
KEPT = "_floodway_kept"
ARRIVAL = "_arrival"


@dataclass(frozen=True)
class Shedder:
    """A drop for one stream, to be given to `DataFrame.transform`; made by `shed`."""

    settings: ShedSettings
    files: ShedFiles
    utility: str | Column | None = None
    key: tuple[str, ...] | None = None
    identity: tuple[str, ...] | None = None
    arrival: str | None = None
    window: WindowDrop | None = None
    side_output: int = 0
    _loops: list[ShedLoop] = field(default_factory=list, repr=False, compare=False)

    @property
    def metric_key(self) -> str:
        """Names this shed among a query's metrics: one name may be in use under several state folders."""
        return f"{self.settings.name}.{crc32(str(self.files.folder).encode()):08x}"

    @property
    def loop(self) -> ShedLoop:
        """The running loop; there is one once the shed was applied to a stream."""
        if not self._loops:
            raise InputError(
                f"shed {self.settings.name!r} is not applied to a stream yet",
                hint="Use df.transform(shed) first.",
            )
        return self._loops[-1]

    @property
    def _options(self) -> tuple[object, ...]:
        """All that was asked for, comparable: a Column compares to a Column, hence its text."""
        utility = None if self.utility is None else str(self.utility)
        return (self.settings, utility, self.key, self.identity, self.arrival, self.window, self.side_output)

    def _new_loop(self) -> ShedLoop:
        return ShedLoop(self.settings, self.files, clock_us=lambda: time.time_ns() // 1000)

    def __call__(self, df: DataFrame) -> DataFrame:
        """The stream with the drop on it and `_weight` added."""
        if not df.isStreaming:
            raise InputError(
                f"shed {self.settings.name!r} was given a DataFrame that is not a stream",
                hint="Use floodway.spark.query.drops.random_drop for batch data.",
            )
        taken = [name for name in df.columns if name.startswith("_floodway_")]
        if taken:
            raise InputError(
                f"the stream already has columns {', '.join(taken)}",
                hint="Rename them; the names are Floodway's.",
            )
        self._check_columns(df)
        spark = df.sparkSession
        loop = attach(spark, self.metric_key, self._options, self._new_loop, on_source=stands_on_source(df))
        self._loops.append(loop)
        write_rule(self.files.store, self._rule(df))
        kept = fn.col(FATE) | ~fn.coalesce(fn.col(ENFORCED), fn.lit(False))
        marked = self._marked(df).withColumn(KEPT, kept)
        counted = marked.observe(metric_name(self.metric_key), *self._counts(df))
        weight = self._weight(df).alias(WEIGHT)
        return counted.filter(KEPT).select(*[column(name) for name in df.columns if name != WEIGHT], weight)

    def _check_columns(self, df: DataFrame) -> None:
        """Refuse options that name no column of the stream, before anything is written."""
        options = {"arrival": self.arrival, "window": None if self.window is None else self.window.time_column}
        for option, name in options.items():
            if name is not None and name not in df.columns:
                raise InputError(
                    f"shed {self.settings.name!r}: {option}= names {name!r}, which is no column of the stream",
                    hint=f"Choose from {', '.join(df.columns)}.",
                )
        if self.window is None:
            self._hashed(df)
        given = {"utility=": self.utility, f"column {WEIGHT}": f"`{WEIGHT}`" if WEIGHT in df.columns else None}
        for what, value in given.items():
            number = fn.expr(value) if isinstance(value, str) else value
            try:
                kind = None if number is None else df.select(number).schema[0].dataType
            except AnalysisException as error:
                raise InputError(
                    f"shed {self.settings.name!r}: {what} is no column or expression of the stream: {value}",
                    hint=f"Choose from {', '.join(df.columns)}.",
                ) from error
            if kind is not None and not isinstance(kind, NumericType):
                raise InputError(
                    f"shed {self.settings.name!r}: {what} is of type {kind.simpleString()}, not a number",
                    hint="Cast it, or rename the column.",
                )

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
        )

    def kept_windows(self, window_column: str = "window") -> _KeptWindows:
        """For after the aggregate, with `window=`: lets only whole windows out."""
        if self.window is None:
            raise InputError(
                f"shed {self.settings.name!r} does not drop windows", hint="Give it window=WindowDrop(...)."
            )
        return _KeptWindows(self, window_column)

    def _marked(self, df: DataFrame) -> DataFrame:
        """The stream with the entry in force, the slot, the utility and the fate of every tuple."""
        found = with_control(df, self.files.control)
        salt = fn.coalesce(fn.col(SALT), fn.lit(0).cast("bigint"))
        if self.window is not None:
            # A table that cannot be read passes everything; a window older than its epochs passes nothing.
            whole = fn.col(EPOCHS).isNull()
            by_window = passes(
                self.window.shape,
                time_us(self.window.time_column),
                lambda start: epoch_keep("pass_ppm", start),
                fn.lit(self.settings.salt),
            )
            return found.withColumn(FATE, whole | by_window)
        slotted = found.withColumn(SLOT, hash_ppm(df, salt, self._hashed(df)))
        below = fn.col(SLOT) < fn.col(KEEP)
        if self.utility is None:
            return slotted.withColumn(FATE, fn.coalesce(below, fn.lit(True)))
        given = fn.expr(self.utility) if isinstance(self.utility, str) else self.utility
        valued = slotted.withColumn(UTILITY, utility_column(given))
        threshold = fn.col(THRESHOLD)
        above = fn.col(UTILITY) > threshold
        tied = (fn.col(UTILITY) == threshold) & (fn.col(SLOT) < fn.col(TIE))
        fate = fn.when(threshold.isNull(), below).otherwise(above | tied | (fn.col(SLOT) < self.settings.floor_ppm))
        return valued.withColumn(FATE, fn.coalesce(fate, fn.lit(True)))

    def _hashed(self, df: DataFrame) -> tuple[str, ...]:
        return identity_columns(df, self.key or self.identity)

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
            metrics.append(utility_summary(fn.col(UTILITY)).alias("utilities"))
        if self.window is not None:
            metrics.append(fn.max(time_us(self.window.time_column)).alias("event_us"))
        if self.side_output:
            dropped = ~fn.col(KEPT)
            # The rows with the least hash: a sample of fixed size that needs no more memory than itself.
            order = fn.when(dropped, fn.xxhash64(*[column(c) for c in identity_columns(df, self.identity)]))
            text = fn.when(dropped, fn.to_json(fn.struct(*[column(name) for name in df.columns])))
            metrics.append(fn.min_by(text, order, self.side_output).alias("dropped_tuples"))
        arrival = self.arrival or (ARRIVAL if ARRIVAL in df.columns else None)
        if arrival is not None:
            metrics.append(fn.avg(fn.when(fn.col(KEPT), time_us(arrival))).alias("arrival_us"))
        return metrics

    def _weight(self, df: DataFrame) -> Column:
        before = column(WEIGHT).cast("double") if WEIGHT in df.columns else fn.lit(1.0)
        if self.window is not None:
            return before
        ppm = fn.lit(float(PPM))
        weight = ppm / fn.greatest(fn.col(KEEP), fn.lit(1))
        if self.utility is not None:
            # What is above the threshold stands for itself; what is below is kept, and estimated, by the floor alone.
            utility, threshold = fn.col(UTILITY), fn.col(THRESHOLD)
            by_tie = fn.when(utility > threshold, 1.0).when(utility == threshold, ppm / fn.greatest(TIE, fn.lit(1)))
            by_value = by_tie.otherwise(ppm / max(self.settings.floor_ppm, 1))
            weight = fn.when(threshold.isNull(), weight).otherwise(by_value)
        return before * fn.when(fn.col(ENFORCED), weight).otherwise(fn.lit(1.0))


@dataclass(frozen=True)
class _KeptWindows:
    """Lets only whole windows out of an aggregate."""

    shedder: Shedder
    window_column: str

    def __call__(self, df: DataFrame) -> DataFrame:
        shedder = self.shedder
        shape = shedder.settings.window
        if shape is None:
            return df
        whole = emits(
            shape,
            self.window_column,
            lambda start: epoch_keep("emit_ppm", start),
            fn.lit(shedder.settings.salt),
        )
        return with_control(df, shedder.files.control).filter(whole).drop(*CONTROL)


def shed(
    name: str,
    *,
    target_latency: str | float,
    mode: str = "observe",
    controller: str | Controller[Any] = "batch",
    options: Mapping[str, object] | None = None,
    headroom: float = 1.0,
    utility: str | Column | None = None,
    floor: float = 0.0,
    key: str | Sequence[str] | None = None,
    identity: str | Sequence[str] | None = None,
    arrival: str | None = None,
    window: WindowDrop | None = None,
    seed: int | None = None,
    side_output: int = 0,
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
    - `identity`: columns that tell tuples apart; left out: `_id`, Kafka's (topic, partition, offset), or all.
    - `arrival`: the timestamp column from which latency counts (`_arrival` if there is one). Left out, tuples
      are taken to arrive evenly between two batches, which is true of sources that hand over all they have;
      with a backlog that a read limit holds back in the source, give it.
    - `window`: shed whole windows (`WindowDrop`); one query a shed.
    - `side_output`: that many dropped tuples of every batch, as JSON, in `dropped.jsonl`.
    """
    if window is not None and (utility is not None or key is not None):
        raise InputError(
            f"shed {name!r}: window= drops whole windows, so it takes neither utility= nor key=",
            hint="Use one of them.",
        )
    if utility is not None and key is not None:
        raise InputError(
            f"shed {name!r}: utility= and key= cannot both decide",
            hint="Make the utility a function of the key.",
        )
    if not 0.0 <= floor <= 0.5 or (floor and utility is None):
        raise InputError(
            f"shed {name!r}: floor={floor} is no share in [0, 0.5] of tuples chosen by utility=",
            hint="Give utility= and a small share, such as 0.02.",
        )
    if not 0 <= side_output <= 10_000:
        raise InputError(
            f"shed {name!r}: side_output={side_output} is not in [0, 10000]",
            hint="It is tuples a micro-batch; they travel to the driver.",
        )
    target = Target.of("target_latency", target_latency)
    settings = ShedSettings(
        name=name,
        target_seconds=target.seconds,
        controller=_law(controller, target, headroom, options or {}),
        mode=checked_mode(mode),
        salt=crc32(name.encode()) if seed is None else seed,
        headroom=headroom,
        by_utility=utility is not None,
        floor_ppm=round(floor * PPM),
        window=None if window is None else window.shape,
    )
    return Shedder(
        settings=settings,
        files=shed_files(name, state_dir),
        utility=utility,
        key=_names(key),
        identity=_names(identity),
        arrival=arrival,
        window=window,
        side_output=side_output,
    )


def _law(
    controller: str | Controller[Any], target: Target, headroom: float, options: Mapping[str, object]
) -> Controller[Any]:
    """The law for the target: for that of a percentile, a law for the mean that is told which mean to hold."""
    law = _controller(controller, target.seconds * headroom, options)
    return law if target.quantile is None else Percentile(law, target.quantile, target.seconds * headroom)


def _controller(
    controller: str | Controller[Any], target_seconds: float, options: Mapping[str, object]
) -> Controller[Any]:
    if isinstance(controller, Controller):
        if options:
            raise InputError(
                f"options={dict(options)!r} are for a controller given by name",
                hint="Give them to the instance, or give the controller's name.",
            )
        return controller
    factory = controllers().get(controller)
    if factory is not None and "target_seconds" in {f.name for f in fields(factory.config)}:
        options = {"target_seconds": target_seconds, **options}
    return make_controller(controller, **options)


def _names(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)
