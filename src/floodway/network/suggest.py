"""Did you mean: the known name nearest to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LISTED = 8
_COMPARED = 500


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
