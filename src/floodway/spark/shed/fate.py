"""Which tuples a finished batch kept, as one expression: for reading its dropped tuples again.

A `Rule` is what a user chose once (identity, key, utility, windows); it is kept in the state (`rule.json`), because the
expression must be the same whenever dropped tuples are read again. The decision is that of one finished
batch, as literals.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.facts import BatchFacts
from floodway.job.store.store import Store
from floodway.planning.window_drop import WindowShape
from floodway.spark.query.drops import hash_ppm
from floodway.spark.shed.key_columns import keep_of_key, key_hash
from floodway.spark.shed.rare import FIRST, NOBODY, first_of_key
from floodway.spark.shed.utility import utility_column
from floodway.spark.shed.window_drop import passes, time_us

RULE = "rule.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides beside the decision: the columns hashed, the utility as an SQL expression, the windows.

    `timestamp` is the column by which tuples are stale, `share_by` the expression whose values have quotas. `utility`
    None with `by_utility` says that the utility was a Column of the program, which cannot be kept.
    """

    hashed: tuple[str, ...]
    by_utility: bool = False
    utility: str | None = None
    floor_ppm: int = 0
    window: WindowShape | None = None
    time_column: str | None = None
    salt: int = 0
    timestamp: str | None = None
    share_by: str | None = None
    keep_rare: int = 0
    rare_by: str | None = None
    version: Literal[1] = 1


_RULE = TypeAdapter(Rule)


def write_rule(store: Store, rule: Rule) -> None:
    """Keep the rule, if it is another one than is there."""
    data = json.dumps(asdict(rule)).encode()
    if store.read(RULE) != data:
        store.write(RULE, data)


def read_rule(store: Store) -> Rule:
    """The rule of a shed; InputError if it never ran."""
    raw = store.read(RULE)
    try:
        if raw is not None:
            return _RULE.validate_json(raw)
    except ValidationError:
        pass
    raise InputError(
        f"{store.uri} holds no shed that has run with this version",
        hint="Check the name and the state folder; `floodway top NAME` shows what is there",
    )


def by_hash(df: DataFrame, rule: Rule, keep_ppm: Column, salt: Column) -> Column:
    """Whether a tuple is kept by the hash of its identity or key."""
    return hash_ppm(df, salt, rule.hashed) < keep_ppm


def fate(df: DataFrame, rule: Rule, facts: BatchFacts) -> Column:
    """Whether a finished batch kept a tuple. The same expression as the live query's, with the decision as literals."""
    kept, skipped = _chosen(df, rule, facts), fn.lit(False)
    if rule.timestamp is not None and facts.stale_before_us is not None:
        skipped |= is_stale(rule.timestamp, fn.lit(facts.stale_before_us))
    for topic, positions in facts.skip.items():
        skipped |= (fn.col("topic") == topic) & is_behind(fn.lit(list(positions)).cast("array<bigint>"))
    if rule.rare_by is not None:
        kept |= rank(rule.rare_by, skipped, rule.keep_rare) == FIRST
    return ~skipped & kept


def is_behind(positions: Column) -> Column:
    """Whether a tuple is before the position of its partition; one of a partition without a position is not."""
    return fn.coalesce(fn.col("offset") < fn.get(positions, fn.col("partition")), fn.lit(False))


def rank(rare_by: str, skipped: Column, number: int) -> Column:
    """What a tuple is among those of its key: skipped ones do not count."""
    return first_of_key(fn.when(skipped, fn.lit(NOBODY)).otherwise(key_hash(fn.expr(rare_by))), number)


def is_stale(timestamp: str, before_us: Column) -> Column:
    """Whether a tuple is too old to be processed; one without a time is not."""
    return fn.coalesce(time_us(timestamp) < before_us, fn.lit(False))


def _chosen(df: DataFrame, rule: Rule, facts: BatchFacts) -> Column:
    """Whether a tuple that is not stale was kept."""
    salt = fn.lit(facts.salt).cast("bigint")
    if rule.window is not None and rule.time_column is not None:
        epochs = facts.epochs

        def keep_at(start: Column) -> Column:
            """The last epoch that had begun by then; null before the first one, which keeps nothing."""
            found = fn.lit(None).cast("int")
            for start_us, pass_ppm, _ in epochs:
                found = fn.when(start >= fn.lit(start_us), fn.lit(pass_ppm)).otherwise(found)
            return found

        return passes(rule.window, time_us(rule.time_column), keep_at, fn.lit(rule.salt))
    if rule.share_by is not None and facts.others_ppm is not None:
        return by_hash(df, rule, keep_of_key(rule.share_by, facts.quotas, facts.others_ppm), salt)
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
