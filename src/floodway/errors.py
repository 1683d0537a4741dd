"""Every error Floodway raises on purpose, under one base class, and the known name nearest to a mistyped one.

An error says what is wrong, where, and what to do; the command line prints it without a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec


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
_LISTED = 8
_COMPARED = 500


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
        count = len(self.problems)
        super().__init__(f"{source} has {count} problem{'s' if count != 1 else ''}:\n{lines}")


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
    library, _, module = (error.name or "").partition(".")
    if library not in EXTRAS:
        return None
    if module and library == "pyspark" and find_spec(library) is not None:
        return MissingExtraError(
            f"this needs Spark 4.2 or later, the one that is installed has no {error.name}",
            hint="Use a newer one, or floodway.shed, which needs Spark 3.5 or later",
        )
    return MissingExtraError(
        f"this needs {library}, which is not installed", hint=f"Run: pip install 'floodway[{EXTRAS[library]}]'"
    )


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Known names that look like `name`, best first; several only where none stands out.

    >>> nearest("strems", ["streams", "nodes"]), nearest("s9", ["s1", "s2"])
    (['streams'], ['s1', 's2'])
    """
    # Alike names that differ only in case are the likeliest slip of all, and difflib counts them far apart.
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    lowered = name.lower()
    if lowered in by_lower:
        return [by_lower[lowered]]
    # difflib is quadratic in the lengths and slow over many names: a huge file must not hang on its errors.
    if len(name) > 200:
        return []
    candidates = list(by_lower)
    if len(candidates) > _COMPARED:
        candidates = [other for other in candidates if other[:2] == lowered[:2]][:_COMPARED]
    close = get_close_matches(lowered, candidates, n=1, cutoff=0.65)
    if not close:
        close = sorted(get_close_matches(lowered, candidates, n=3, cutoff=0.5))
    return [by_lower[match] for match in close]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown name, ready to append to a message.

    >>> did_you_mean("strems", ["streams", "nodes"])
    'did you mean streams?'
    >>> did_you_mean("xyz", ["streams", "nodes"])
    'known: streams, nodes'
    """
    names = list(known)
    close = nearest(name, names)
    if close:
        head = ", ".join(close[:-1])
        return f"did you mean {head} or {close[-1]}?" if head else f"did you mean {close[0]}?"
    if not names:
        return "none is defined"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"known: {', '.join(names[:_LISTED])}{more}"


def suggestion(text: str, words: Iterable[str]) -> str:
    """The nearest word, or all of them, as a sentence of its own.

    >>> suggestion("bach", ["batch", "pid"])
    'Did you mean batch?'
    """
    found = did_you_mean(text, words)
    return found[0].upper() + found[1:]
