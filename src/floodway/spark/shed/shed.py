"""`floodway.shed`: one line that protects an existing streaming job, whatever its source.

    clicks.transform(floodway.shed("clicks", target_latency="2s"))

adds a drop whose rate follows the latency, without a restart. The plan stays the same for ever (so does the state of
what comes after it): every micro-batch reads the decision in force from the control table and keeps a tuple by the
hash of its identity, so a replay repeats it. Survivors carry `_weight` = 1/keep.

Around the drop exact counts are observed; a listener in the driver turns them into the next decision, a ledger line
and a status (`loop.py`). Files and their formats: `job/places.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import __version__ as pyspark_version
from pyspark.sql import Column, DataFrame, SparkSession

from floodway.errors import InputError
from floodway.job.places import ShedFiles, checked_name
from floodway.spark.session.stores import is_connect, place_files, setting
from floodway.spark.shed.bound import BoundShed
from floodway.spark.shed.options import ShedOptions, refuse_unknown

if TYPE_CHECKING:
    from floodway.control.base import Controller
    from floodway.job.options.accuracy import Accuracy
    from floodway.spark.shed.chooser import ShedSettings
    from floodway.spark.shed.loop import ShedLoop
    from floodway.spark.shed.window_drop import WindowDrop


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
    def decision(self) -> str:
        """With `lossless=`: the option `decision` of a Floodway source, which then takes what fits into a batch."""
        from floodway.spark.shed.source_limit import decision_path

        session = SparkSession.getActiveSession()
        return str(decision_path(self.files if session is None else self.bind(session).files))

    @property
    def metric_key(self) -> str:
        """Names this shed among a query's metrics."""
        return self.files.key(self.name)

    @property
    def loop(self) -> ShedLoop:
        """The running loop; there is one once the shed was applied to a stream."""
        loops = [loop for bound in self._bound for loop in bound.loops]
        if not loops:
            raise InputError(f"shed {self.name!r} is not applied to a stream yet", hint="Use df.transform(shed) first.")
        return loops[-1]


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
    accuracy: Accuracy | None = None,
    keep_rare: int | None = None,
    rare_by: str | None = None,
    identity: str | Sequence[str] | None = None,
    arrival: str | None = None,
    window: WindowDrop | None = None,
    seed: int | None = None,
    side_output: int | None = None,
    expires_after: str | float | None = None,
    shed_after: str | float | None = None,
    ask_executors: bool | None = None,
    lossless: bool | None = None,
    skip_when_lag: int | None = None,
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
    - `accuracy`: `floodway.Accuracy("sum(price)", by="page", within=0.01)`: so much is kept of every group that an
      estimate by `_weight` has 95% bounds of that width, where latency and `prefer` allow it.
    - `keep_rare`: of every value of `rare_by` (else of `share_by`) the first so many tuples of each task of a batch are
      kept, whatever is dropped of the rest: every key that comes in goes out. Python workers count them.
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
    - `ask_executors`: True asks Spark for executors while more capacity is needed than is there; with its dynamic
      allocation, in a Classic session.
    - `lossless`: nothing is dropped; the status says how far behind the job is, and when it will have caught up. A
      Floodway source with the option `decision` set to `shed.decision` takes as much per batch as fits the target.
      With `max_age` what would become older is skipped.
    - `skip_when_lag`: when more tuples than that wait in Kafka behind `maxOffsetsPerTrigger`, the oldest beyond it are
      skipped.
    - `max_age`: tuples that are older when their batch begins ("10m") are skipped, by the column `timestamp` (Kafka's).
    - `state_dir`: the folder or URI (`hdfs:`, `s3a:`, …) that its state lies below; else see `spark/session/stores.py`.

    What is left out here may stand in Spark's settings, as `spark.floodway.target_latency` (`options.py`).
    """
    given = ShedOptions(
        *(target_latency, mode, controller, options, headroom, utility, floor, key),
        *(share_by, weights, accuracy, keep_rare, rare_by, identity, arrival, window),
        *(seed, side_output, expires_after, shed_after, ask_executors, lossless),
        *(skip_when_lag, max_age, timestamp, state_dir),
    )
    return Shedder(checked_name(name), given.checked(name))
