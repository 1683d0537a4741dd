"""What the reader of YAML refuses, and what it makes of scalars."""

from __future__ import annotations

import pytest

from floodway.errors import NetworkError, Problem
from floodway.network.yaml_lines import Located, read_lines

BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def refused(text: str) -> Problem:
    with pytest.raises(NetworkError) as caught:
        read_lines(text, [], source="text")
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (BOMB, 1, "anchor or alias 'a'"),
        ("x: 1\ny: *a\n", 2, "anchor or alias 'a'"),
        ("x: 1\ny: !!python/object/apply:os.system [ls]\n", 2, "the tag"),
        ("x: !local 1\n", 1, "the tag"),
        ("x: 1\n---\ny: 2\n", 2, "second document"),
        ("? [a, b]\n: 1\n", 1, "keys are plain names"),
        ("x: 1\ny: [1, 2\n", 3, "not valid YAML"),
        ("x: 1\n y: 2\n", 2, "not valid YAML"),
        ("x: 1\ny: '\n", 3, "not valid YAML"),
        ("x: 1\ny: \x07\n", 2, "control character"),
        ("[" * 100_000, 1, "nested deeper"),
        ("{a: " * 100_000, 1, "nested deeper"),
        ("\n".join(" " * i + f"k{i}:" for i in range(500)), 21, "nested deeper"),
    ],
)
def test_refused_with_a_line(text: str, line: int, message: str) -> None:
    problem = refused(text)
    assert message in problem.message
    assert problem.line == line


def test_lines_of_keys_and_values() -> None:
    root = read_lines("a: 1\n\nb:\n  c: [x,\n      y]\n", [], source="text")
    assert root is not None
    assert isinstance(root.value, dict)
    below = root.value["b"]
    assert (below.key_line, below.line) == (3, 4)
    assert isinstance(below.value, dict)
    items = below.value["c"].value
    assert isinstance(items, list)
    assert [(item.value, item.line) for item in items] == [("x", 4), ("y", 5)]


def test_duplicates_keep_the_first_and_are_reported_at_any_depth() -> None:
    problems: list[Problem] = []
    root = read_lines("a: {b: 1, b: {c: 2}}\na: 3\n", problems, source="text")
    assert root is not None
    assert isinstance(root.value, dict)
    inside = root.value["a"].value
    assert isinstance(inside, dict)
    assert inside["b"].value == 1
    assert [(problem.key, problem.line) for problem in problems] == [("a.b", 1), ("a", 2)]


def test_quoted_scalars_stay_text() -> None:
    root = read_lines("['1', \"true\", 1, yes, 1e3, 007, 0x10, -.5]", [], source="text")
    assert isinstance(root, Located)
    assert isinstance(root.value, list)
    assert [item.value for item in root.value] == ["1", "true", 1, "yes", 1000.0, 7, "0x10", -0.5]
    assert [item.text for item in root.value][-1] == "-.5"
