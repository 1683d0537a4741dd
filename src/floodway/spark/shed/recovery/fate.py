"""Which tuples a finished batch kept, as one expression: for reading its dropped tuples again.

What the user chose once is the `Rule` (`job/ledger/facts.py`); the decision is that of one finished batch, as literals.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.facts import BatchFacts, Rule
from floodway.job.ledger.ledger_line import Reason
from floodway.spark.query.drops import hash_ppm, time_us
from floodway.spark.shed.keys.key_columns import group_hash, keep_of_key, key_hash
from floodway.spark.shed.keys.rare import FIRST, NOBODY, first_of_key
from floodway.spark.shed.utility import utility_column
from floodway.spark.shed.window_drop import KeepAt, missing_windows, passes


def by_hash(df: DataFrame, rule: Rule, keep_ppm: Column, salt: Column) -> Column:
    """Whether a tuple is kept by the hash of its identity or key."""
    return hash_ppm(df, salt, rule.hashed) < keep_ppm


def fate(df: DataFrame, rule: Rule, facts: BatchFacts) -> Column:
    """Whether a finished batch kept a tuple. The same expression as the live query's, with the decision as literals."""
    stale, behind = _skipped(rule, facts)
    kept, skipped = _chosen(df, rule, facts), stale | behind
    if rule.rare_by is not None:
        kept |= rank(rule.rare_by, skipped, rule.keep_rare) == FIRST
    return ~skipped & kept


def missing(rule: Rule, facts: BatchFacts) -> Column | None:
    """The windows of a tuple that the job did not emit, although it may have kept the tuple for another window.

    None without Window Drop. Epochs that came after the batch begin later than any event time in it.
    """
    if rule.window is None or rule.time_column is None:
        return None
    emitting = [(start_us, emit_ppm) for start_us, _, emit_ppm in (*facts.epochs, *facts.later_epochs)]
    return missing_windows(rule.window, time_us(rule.time_column), _keep_at(emitting), fn.lit(rule.salt))


def reasons(rule: Rule, facts: BatchFacts) -> dict[Reason, Column]:
    """Which of the dropped tuples went for another reason than the keep, in the order of the accounts."""
    stale, behind = _skipped(rule, facts)
    found = {Reason.STALE: stale, Reason.LAG: ~stale & behind}
    if rule.share_by is not None and facts.others_ppm is not None:
        quota = keep_of_key(key_hash(fn.expr(rule.share_by)), facts.quotas, facts.others_ppm)
        return {Reason.SHARE: ~stale & ~behind & (quota < facts.others_ppm), **found}
    return found


def _keep_at(epochs: Sequence[tuple[int, int]]) -> KeepAt:
    """The keep of the last epoch that has begun; null before the first one, which keeps nothing."""
    starts = fn.lit([start_us for start_us, _ in epochs]).cast("array<bigint>")
    keeps = fn.lit([keep_ppm for _, keep_ppm in epochs]).cast("array<int>")
    return lambda start: fn.get(keeps, fn.size(fn.filter(starts, lambda begun: begun <= start)) - 1)


def is_behind(positions: Column) -> Column:
    """Whether a tuple is before the position of its partition; one of a partition without a position is not."""
    return fn.coalesce(fn.col("offset") < fn.get(positions, fn.col("partition")), fn.lit(False))


def rank(rare_by: str, skipped: Column, number: int) -> Column:
    """What a tuple is among those of its key: skipped ones do not count."""
    return first_of_key(fn.when(skipped, fn.lit(NOBODY)).otherwise(key_hash(fn.expr(rare_by))), number)


def is_stale(timestamp: str, before_us: Column) -> Column:
    """Whether a tuple is too old to be processed; one without a time is not."""
    return fn.coalesce(time_us(timestamp) < before_us, fn.lit(False))


def _skipped(rule: Rule, facts: BatchFacts) -> tuple[Column, Column]:
    """Whether a tuple went because of its age, and because of its position."""
    stale = behind = fn.lit(False)
    if rule.timestamp is not None and facts.stale_before_us is not None:
        stale = is_stale(rule.timestamp, fn.lit(facts.stale_before_us))
    for topic, positions in facts.skip.items():
        behind |= (fn.col("topic") == topic) & is_behind(fn.lit(list(positions)).cast("array<bigint>"))
    return stale, behind


def _chosen(df: DataFrame, rule: Rule, facts: BatchFacts) -> Column:
    """Whether a tuple that is not stale was kept."""
    salt = fn.lit(facts.salt).cast("bigint")
    if rule.window is not None and rule.time_column is not None:
        passing = [(start_us, pass_ppm) for start_us, pass_ppm, _ in facts.epochs]
        return passes(rule.window, time_us(rule.time_column), _keep_at(passing), fn.lit(rule.salt))
    if rule.share_by is not None and facts.others_ppm is not None:
        return by_hash(df, rule, keep_of_key(key_hash(fn.expr(rule.share_by)), facts.quotas, facts.others_ppm), salt)
    if rule.accuracy_by is not None and facts.others_ppm is not None:
        return by_hash(df, rule, keep_of_key(group_hash(rule.accuracy_by), facts.quotas, facts.others_ppm), salt)
    below = by_hash(df, rule, fn.lit(facts.keep_ppm), salt)
    if facts.threshold is None:
        return below
    if rule.utility is None:
        raise InputError(
            "the utility was given as a Column, which cannot be kept for later",
            hint="Give utility= as text (an SQL expression) to be able to read dropped tuples again",
        )
    value, threshold = utility_column(fn.expr(rule.utility)), fn.lit(facts.threshold)
    tied = (value == threshold) & by_hash(df, rule, fn.lit(facts.tie_ppm), salt)
    return (value > threshold) | tied | by_hash(df, rule, fn.lit(rule.floor_ppm), salt)
