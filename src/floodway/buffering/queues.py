"""What waits, and where: one FIFO queue per (stream, deadline class), described by what all its tuples share.

Times are seconds on one clock; a deadline is the *relative* tuple delay T_d allowed between a tuple's generation t_g
and the end of its processing (buffer-preposed paper, section 3). A class without a deadline waits for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from floodway.errors import InputError, suggestion

Policy = TypeVar("Policy")


@dataclass(frozen=True, slots=True)
class QueueClass:
    """The (stream, deadline class) that a queue holds; a higher `priority` matters more.

    >>> QueueClass("s1").deadline_seconds
    inf
    >>> QueueClass("s1", deadline_seconds=-1.0)
    Traceback (most recent call last):
    ...
    floodway.errors.InputError: queue of 's1': a deadline of -1.0 s cannot be met. Give ...
    """

    stream: str
    deadline_seconds: float = math.inf
    priority: int = 0

    def __post_init__(self) -> None:
        if math.isnan(self.deadline_seconds) or self.deadline_seconds < 0:
            raise InputError(
                f"queue of {self.stream!r}: a deadline of {self.deadline_seconds} s cannot be met",
                hint="Give a deadline of at least 0 seconds, or leave it out for none",
            )

    @property
    def has_deadline(self) -> bool:
        """Whether the tuples of this class can be late at all."""
        return math.isfinite(self.deadline_seconds)


def lookup(kind: str, policies: Mapping[str, Policy], name: str) -> Policy:
    """A registered policy by name; an unknown name is refused with the nearest known one."""
    if name in policies:
        return policies[name]
    raise InputError(f"no {kind} is called {name!r}", hint=suggestion(name, policies))


def check_limit(limit: int, *, where: str) -> int:
    """A queue limit is a whole number of tuples; zero is allowed and means that nothing may wait."""
    if limit < 0:
        raise InputError(f"{where}: a queue limit of {limit} tuples", hint="Give a limit of at least 0 tuples")
    return limit
