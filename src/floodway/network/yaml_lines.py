"""YAML (and JSON, which is a part of it) read into plain values that know their line.

The parser's events are walked with a stack of our own, so that nesting costs no recursion, and what a network file
never needs is refused on sight: aliases and anchors (a few lines of them expand to gigabytes), tags (they name types
to construct) and nesting deeper than `MAX_DEPTH`. Scalars follow the YAML 1.2 core rules: `1e6` is a number, and `no`
or `on` is a name, not a truth value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from floodway.errors import NetworkError, Problem

MAX_DEPTH = 20
WHOLE_FILE = "(file)"

Scalar: TypeAlias = str | float | int | bool | None

_INT = re.compile(r"[-+]?[0-9]{1,17}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Located:
    """A value and where it stands: `line` of the value, `key_line` of the key before it (both 1-based).

    `text` is a scalar's own spelling, for places that want a name whatever it looks like (`from: 1`).
    """

    value: Scalar | list[Located] | dict[str, Located]
    line: int
    key_line: int
    text: str | None = None


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been seen, with the key that waits for its value."""

    located: Located
    path: str
    key: str | None = None
    key_line: int = 0
    skip: bool = False
    seen: dict[str, int] = field(default_factory=dict)


def read_lines(text: str, problems: list[Problem], *, source: str) -> Located | None:
    """Parse one document; None when it is empty.

    Duplicate keys go to `problems` and the first is kept; what makes the text unreadable raises NetworkError.
    """
    stack: list[_Open] = []
    root: Located | None = None
    documents = 0
    for event in _events(_join_surrogates(text), source):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _refusal("a second document starts here; keep one network in a file", line, source)
            continue
        _refuse_alias_and_tag(event, line, source)
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            stack.pop()
            continue
        if not isinstance(event, (yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            continue
        if _is_key(stack):
            _take_key(stack[-1], event, line, problems, source)
            continue
        located, path = _place(stack, event, line)
        root = root or located
        if not isinstance(event, yaml.ScalarEvent):
            if len(stack) == MAX_DEPTH:
                message = f"nested deeper than {MAX_DEPTH} levels; a network file needs four"
                raise _refusal(message, line, source)
            stack.append(_Open(located, path))
    return root


def _join_surrogates(text: str) -> str:
    """Spell out JSON's pairs of escapes for one character (`\\ud83d\\ude00`), which YAML does not know."""
    return _PAIR.sub(lambda match: match[1] + json.loads(f'"{match[2]}"'), text) if "\\ud" in text.lower() else text


def _events(text: str, source: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise _refusal(f"not valid YAML: {reason}", mark.line + 1 if mark else None, source) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _refusal("not valid YAML: it holds a control character; remove it", line, source) from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise _refusal("not valid YAML", None, source) from error


def _refusal(message: str, line: int | None, source: str) -> NetworkError:
    return NetworkError([Problem(WHOLE_FILE, line, message)], source=source)


def _refuse_alias_and_tag(event: yaml.Event, line: int, source: str) -> None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        name = getattr(event, "anchor", "")
        raise _refusal(f"the anchor or alias {name!r} is refused; write the values out", line, source)
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise _refusal(f"the tag {tag!r} is refused; network files hold plain values only", line, source)


def _is_key(stack: list[_Open]) -> bool:
    return bool(stack) and isinstance(stack[-1].located.value, dict) and stack[-1].key is None


def _take_key(top: _Open, event: yaml.Event, line: int, problems: list[Problem], source: str) -> None:
    if not isinstance(event, yaml.ScalarEvent):
        raise _refusal("a list or mapping is used as a key; keys are plain names", line, source)
    key = str(event.value)
    top.skip = key in top.seen
    if top.skip:
        message = f"this key is already given in line {top.seen[key]}; remove one of the two"
        problems.append(Problem(join(top.path, key), line, message))
    top.seen.setdefault(key, line)
    top.key, top.key_line = key, line


def _place(stack: list[_Open], event: yaml.Event, line: int) -> tuple[Located, str]:
    """Make the value of an event and hang it into the mapping or list that is open."""
    located = Located(_empty(event), line, line)
    if isinstance(event, yaml.ScalarEvent):
        located.text = event.value
        plain = event.style is None or event.style == ""
        located.value = resolve(event.value) if plain else event.value
    if not stack:
        return located, ""
    top = stack[-1]
    if isinstance(top.located.value, list):
        top.located.value.append(located)
        return located, f"{top.path}[{len(top.located.value) - 1}]"
    key = top.key or ""
    located.key_line = top.key_line
    if isinstance(top.located.value, dict) and not top.skip:
        top.located.value[key] = located
    top.key = None
    return located, join(top.path, key)


def _empty(event: yaml.Event) -> list[Located] | dict[str, Located] | None:
    if isinstance(event, yaml.MappingStartEvent):
        return {}
    return [] if isinstance(event, yaml.SequenceStartEvent) else None


def join(path: str, key: str) -> str:
    """Extend a key path.

    >>> join("operators.b1", "cost")
    'operators.b1.cost'
    """
    return f"{path}.{key}" if path else key


def resolve(text: str) -> Scalar:
    """The value of an unquoted scalar.

    >>> [resolve(text) for text in ("1e6", "2", "true", "no", "~", ".inf", "250ms")]
    [1000000.0, 2, True, 'no', None, inf, '250ms']
    """
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text[0] in "tT"
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL.get(text.lower())
    return text if special is None else float(special)
