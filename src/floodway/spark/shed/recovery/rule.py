"""What a user chose once that decides over tuples (identity, key, utility, windows), kept in the state as `rule.json`.

The expression by which dropped tuples are found (`fate.py`) must be the same whenever they are read again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.job.store.store import Store
from floodway.planning.windows.window_drop import WindowShape

RULE = "rule.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides beside the decision: the columns hashed, the utility as an SQL expression, the windows.

    `timestamp` is the column by which tuples are stale, `share_by` the expression whose values have quotas,
    `accuracy_by` that whose values have keeps for an accuracy. `utility`
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
    accuracy_by: str | None = None
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
