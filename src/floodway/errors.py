"""Every error Floodway raises on purpose, under one base class.

An error says what is wrong, where, and what to do; the command line prints it without a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class FloodwayError(Exception):
    """Base class: `message` says what is wrong and where, `hint` what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}. {hint}")
        self.message = message
        self.hint = hint


MOST_KEY, MOST_MESSAGE = 120, 400
"""Characters of a problem that are shown."""
MOST_PROBLEMS = 20


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a network file: the key path, the line (1-based, if known), the message with its remedy."""

    key: str
    line: int | None
    message: str

    def __post_init__(self) -> None:
        # A file may hold anything, and what it holds is quoted: a terminal and a log want a line.
        object.__setattr__(self, "key", _cut(self.key, MOST_KEY))
        object.__setattr__(self, "message", _cut(self.message, MOST_MESSAGE))

    def __str__(self) -> str:
        where = self.key if self.line is None else f"line {self.line}: {self.key}"
        return f"{where}: {self.message}"


class NetworkError(FloodwayError):
    """A network file, or rates and keeps given for one, that cannot be used; carries all problems at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], *, source: str = "network") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = "\n".join(f"  {problem}" for problem in self.problems[:MOST_PROBLEMS])
        if len(self.problems) > MOST_PROBLEMS:
            lines += f"\n  … and {len(self.problems) - MOST_PROBLEMS} more"
        super().__init__(f"{source} has {len(self.problems)} problem(s):\n{lines}")


class InputError(FloodwayError):
    """A bad argument: an option, a rate, a file that is not what it claims to be."""

    exit_code = 2


class ContractError(FloodwayError):
    """A contract that makes no sense, or a message that breaks one; what it would have changed stays as it was."""

    exit_code = 2


class PlanningError(FloodwayError):
    """A plan that cannot be computed as asked (too many dimensions, an objective a planner does not know)."""

    exit_code = 2


EXTRAS = {
    "pyspark": "spark",
    "highspy": "planner",
    "confluent_kafka": "kafka",
    "starlette": "page",
    "uvicorn": "page",
    "prometheus_client": "page",
    "matplotlib": "plots",
    "opentelemetry": "otel",
}
"""Which extra brings a library that not every user needs."""


class MissingExtraError(FloodwayError):
    """A part of Floodway was used whose library is not installed."""

    exit_code = 2


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The error to show in place of a failed import; None if no extra would help.

    >>> print(missing_extra(ModuleNotFoundError(name="highspy")))
    this needs highspy, which is not installed. Run: pip install 'floodway[planner]'
    """
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    return MissingExtraError(
        f"this needs {library}, which is not installed", hint=f"Run: pip install 'floodway[{EXTRAS[library]}]'"
    )
