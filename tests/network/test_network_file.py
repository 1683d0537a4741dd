"""Every kind of mistake in a network file: its key, its line, its remedy, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from floodway.errors import NetworkError, Problem
from floodway.network.file import MAX_BYTES, load_network, network_to_yaml, parse_network
from floodway.network.model import OperatorKind

GOOD = """\
version: 1
name: good
streams:
  s1: {max_rate: 2.0}
  s2: {max_rate: 2.0}
nodes:
  A: {cpu: 1.0}
  B: {cpu: 1.0, memory: 5000}
operators:
  a1: {node: A, from: s1, cost: 1.0}
  a2: {node: A, from: s2, kind: filter, cost: 2.0, selectivity: 0.5}
  j: {node: B, from: [a1, a2], kind: join, windows: [10, 20], cost: 1.0, selectivity: 0.1}
  g: {node: B, from: a2, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 1.0}
outputs:
  q1: {from: j, weight: 2.0}
  q2: {from: g}
links:
  A->B: {bandwidth: 1.0e6}
"""


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(NetworkError) as caught:
        parse_network(text)
    return caught.value.problems


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must occur once"
    return GOOD.replace(old, new)


def test_the_good_file_is_read_in_full() -> None:
    network = parse_network(GOOD)
    assert network.name == "good"
    assert network.operators["j"].windows == (10.0, 20.0)
    assert network.operators["j"].kind is OperatorKind.JOIN
    assert network.operators["g"].window == 10.0
    assert network.operators["g"].group_by == ("key",)
    assert network.operators["a1"].selectivity == 1.0
    assert network.links[0].bandwidth == 1e6


# What is changed in GOOD, and the one problem that must come of it: key, line, part of the message.
MISTAKES = [
    ("links:", "lnks:", "lnks", 17, "did you mean links?"),
    ("streams:", "strems:", "strems", 3, "did you mean streams?"),
    ("selectivity: 0.5", "selectivty: 0.5", "operators.a2.selectivty", 11, "did you mean selectivity?"),
    ("s1: {max_rate", "s1: {maxrate", "streams.s1.maxrate", 4, "did you mean max_rate?"),
    ("node: A, from: s1", "node: A, form: s1", "operators.a1.form", 10, "did you mean from?"),
    ("from: s1", "from: s11", "operators.a1.from", 10, "did you mean s1?"),
    ("[a1, a2]", "[a1, a22]", "operators.j.from", 12, "did you mean a2?"),
    ("node: A, from: s1", "node: C, from: s1", "operators.a1.node", 10, "known: A, B"),
    ("{from: g}", "{from: gg}", "outputs.q2.from", 16, "did you mean g?"),
    ("{from: g}", "{from: q1}", "outputs.q2.from", 16, "is an output"),
    (", from: s1,", ",", "operators.a1.from", 10, "is missing"),
    ("{from: g}", "{}", "outputs.q2.from", 16, "is missing"),
    ("{node: A, from: s1, ", "{from: s1, ", "operators.a1.node", 10, "is missing"),
    ("{bandwidth: 1.0e6}", "{}", "links.A->B.bandwidth", 18, "bytes per second"),
    ("s1: {max_rate: 2.0}", "s1: {max_rate: }", "streams.s1.max_rate", 4, "give a value"),
    ("from: s1, cost: 1.0", "from: s1, cost: -1", "operators.a1.cost", 10, "at least 0, not -1"),
    ("A: {cpu: 1.0}", "A: {cpu: 0}", "nodes.A.cpu", 7, "above 0, not 0"),
    ("A: {cpu: 1.0}", "A: {cpu: -2}", "nodes.A.cpu", 7, "above 0, not -2"),
    ("A: {cpu: 1.0}", "A: {cpu: .nan}", "nodes.A.cpu", 7, "finite, not nan"),
    ("A: {cpu: 1.0}", "A: {cpu: .inf}", "nodes.A.cpu", 7, "finite, not inf"),
    ("A: {cpu: 1.0}", "A: {cpu: " + "9" * 400 + "}", "nodes.A.cpu", 7, "finite, not inf"),
    ("A: {cpu: 1.0}", "A: {cpu: 1e300}", "nodes.A.cpu", 7, "at most 1e+15"),
    ("A: {cpu: 1.0}", "A: {cpu: true}", "nodes.A.cpu", 7, "not true"),
    ("A: {cpu: 1.0}", "A: {cpu: '1.0'}", "nodes.A.cpu", 7, "remove the quotes"),
    ("A: {cpu: 1.0}", "A: {cpu: [1]}", "nodes.A.cpu", 7, "not a list"),
    ("selectivity: 0.1}", "selectivity: 1.5}", "operators.j.selectivity", 12, "from 0 to 1"),
    ("selectivity: 0.5}", "selectivity: 2}", "operators.a2.selectivity", 11, "from 0 to 1"),
    ("[10, 20]", "[10]", "operators.j.windows", 12, "two windows, not 1"),
    ("[10, 20]", "[10, 0]", "operators.j.windows", 12, "at least 1, not 0"),
    ("[10, 20]", "[10, 0.5]", "operators.j.windows", 12, "at least 1, not 0.5"),
    ("[10, 20]", "[10, 1.5]", "operators.j.windows", 12, "whole numbers"),
    ("windows: [10, 20], ", "", "operators.j.windows", 12, "is missing"),
    ("from: s1, ", "from: s1, windows: [1, 2], ", "operators.a1.windows", 10, "only a join"),
    ("from: s1, ", "from: s1, window: 5, ", "operators.a1.window", 10, "aggregate"),
    ("slide: 5s", "slide: 11s", "operators.g.slide", 13, "not exceed the window of 10 s"),
    ("window: 10s, ", "", "operators.g.slide", 13, "needs a window"),
    ("[a1, a2]", "[a2, a2]", "operators.j.from", 12, "distinct"),
    ("from: s1,", "from: [s1, s2],", "operators.a1.from", 10, "reads one input, not 2"),
    ("kind: filter", "kind: fliter", "operators.a2.kind", 11, "did you mean filter?"),
    ("  q2: {from: g}", "  s1: {from: g}", "outputs.s1", 16, "already used in streams in line 4"),
    ("  s2: {", "  s1: {}\n  s2: {", "streams.s1", 5, "already given in line 4"),
    ("cpu: 1.0}\n  B", "cpu: 1.0, cpu: 2}\n  B", "nodes.A.cpu", 7, "already given in line 7"),
    ("  A->B:", "  'A,B':", "links.A,B", 18, "such as A->B"),
    ("  A->B:", "  A->C:", "links.A->C", 18, "unknown node 'C'"),
    ("  A->B:", "  A->A:", "links.A->A", 18, "two different nodes"),
    ("links:\n", "links:\n  A -> B: {bandwidth: 1}\n", "links.A->B", 19, "same link as A -> B"),
    ("memory: 5000", "memory: 2999", "nodes.B.memory", 8, "3000 bytes"),
    ("window: 10s", "window: 10 parsecs", "operators.g.window", 13, "250ms, 2s, 10 minutes"),
    ("window: 10s", "window: 0s", "operators.g.window", 13, "above 0"),
    ("{from: g}", "{from: g, tier: 1.5}", "outputs.q2.tier", 16, "whole number"),
    ("weight: 2.0", "weight: -2.0", "outputs.q1.weight", 15, "at least 0"),
    ("A: {cpu: 1.0}", "A: {cpu: 1.0, url: here}", "nodes.A.url", 7, "such as http://"),
    ("s1: {", "s1: {log: kafka://host, ", "streams.s1.log", 4, "kafka://host:port/topic"),
    ("from: s1, ", "from: s1, run: os.system, ", "operators.a1.run", 10, "package.module:function"),
    ("A: {cpu: 1.0}", "A: {cpu: 1.0, spark: [a]}", "nodes.A.spark", 7, "mapping of plain values"),
    ("s1: {max_rate: 2.0}", "s1: [2.0]", "streams.s1", 4, "must be a mapping"),
    ("links:\n  A->B: {bandwidth: 1.0e6}", "links: [A, B]", "links", 17, "is a list"),
    ("version: 1", "version: 2", "version", 1, "must be 1"),
    ("version: 1", "version: '1'", "version", 1, "must be 1"),
    ("version: 1\n", "", "version", 1, "is missing"),
    ("  s2: {", "  s3: {}\n  s2: {", "streams.s3", 5, "nobody reads"),
    ("outputs:", "  x: {node: A, from: s1}\noutputs:", "operators.x", 14, "no path to an output"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "key", "line", "message"), MISTAKES, ids=[f"{row[2]}: {row[4]}" for row in MISTAKES]
)
def test_one_mistake_gives_one_problem_with_key_line_and_remedy(
    old: str, new: str, key: str, line: int, message: str
) -> None:
    found = problems_of(changed(old, new))
    # Two of the mistakes leave an operator without its reader, which is then told as well.
    secondary = message in ("is an output", "distinct")
    assert len(found) == 1 + secondary, found
    problem = next(each for each in found if each.key == key)
    assert problem.line == line
    assert message in problem.message


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "a=b", "a->b", "tab\there"], ids=["space", "comma", "equals", "arrow", "tab"]
)
def test_names_that_break_drop_locations_are_refused(name: str) -> None:
    quoted = json.dumps(name)
    text = GOOD.replace("s1:", f"{quoted}:").replace("from: s1", f"from: {quoted}")
    (problem,) = problems_of(text)
    assert (problem.key, problem.line) == (f"streams.{name}", 4)
    assert "use letters, digits" in problem.message


def test_a_cycle_is_named_and_its_output_has_no_path() -> None:
    text = """\
version: 1
streams: {s: {}}
nodes: {A: {}}
operators:
  x: {node: A, from: z}
  y: {node: A, from: x}
  z: {node: A, from: y}
  ok: {node: A, from: s}
outputs:
  q: {from: z}
  p: {from: ok}
"""
    cycle, output = problems_of(text)
    assert (cycle.key, cycle.line) == ("operators.x.from", 5)
    assert "x -> y -> z -> x form a cycle" in cycle.message
    assert (output.key, output.line) == ("outputs.q.from", 10)
    assert "no path from any stream" in output.message


def test_an_operator_that_reads_itself_is_a_cycle() -> None:
    found = problems_of(changed("from: s1", "from: a1"))
    assert ("operators.a1.from", 10) in [(each.key, each.line) for each in found]
    assert any("a1 -> a1 form a cycle" in each.message for each in found)


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace("version: 1", "version: 3").replace("cpu: 1.0}", "cpu: -1}")
    text = text.replace("from: s1", "from: nowhere").replace("weight: 2.0", "weight: heavy")
    found = problems_of(text)
    assert [(each.key, each.line) for each in found] == [
        ("version", 1),
        ("streams.s1", 4),
        ("nodes.A.cpu", 7),
        ("operators.a1.from", 10),
        ("outputs.q1.weight", 15),
    ]


def test_a_missing_section_is_one_problem_not_one_for_each_reference() -> None:
    for section, line in (("streams", 3), ("nodes", 6), ("operators", 9), ("outputs", 14)):
        start = GOOD.index(f"{section}:\n")
        end = next((i for i in range(start + 1, len(GOOD)) if GOOD[i - 1] == "\n" and GOOD[i] != " "), None)
        (missing,) = problems_of(GOOD[:start] + GOOD[end:])
        assert (missing.key, missing.line) == (section, 1)
        (empty,) = problems_of(GOOD[:start] + f"{section}: {{}}\n" + GOOD[end:])
        assert (empty.key, empty.line) == (section, line)


def test_an_unknown_node_used_by_thirty_operators_is_told_a_few_times() -> None:
    operators = "".join(f"  o{i}: {{node: X, from: s}}\n" for i in range(30))
    outputs = "".join(f"  q{i}: {{from: o{i}}}\n" for i in range(30))
    head = "version: 1\nstreams: {s: {}}\nnodes: {A: {}}\n"
    found = problems_of(f"{head}operators:\n{operators}outputs:\n{outputs}")
    assert len(found) == 4
    assert "27 times more" in found[-1].message


def test_thousands_of_problems_are_cut_and_stay_quick() -> None:
    operators = "".join(f"  o{i}: {{node: A, from: x{i}, cost: -1}}\n" for i in range(3000))
    head = "version: 1\nstreams: {s: {}}\nnodes: {A: {}}\noutputs: {q: {from: o1}}\noperators:\n"
    text = head + operators
    found = problems_of(text)
    assert len(found) == 101
    assert "only the first 100" in found[-1].message


def test_json_has_lines_too() -> None:
    body = {"version": 1, "streams": {"s": {}}, "nodes": {"A": {}}}
    body |= {"operators": {"a": {"node": "A", "from": "s", "cost": 1e-3}}, "outputs": {"q": {"from": "a"}}}
    assert parse_network(json.dumps(body)).operators["a"].cost == 1e-3
    assert parse_network(json.dumps(body, indent="\t")).operators["a"].cost == 1e-3
    body["outputs"] = {"q\U0001f600": {"from": "b"}}
    (first, second) = problems_of(json.dumps(body, indent=1))
    assert (first.key, first.line) == ("operators.a", 10)
    assert (second.key, second.line) == ("outputs.q\U0001f600.from", 18)


def test_durations_in_every_unit() -> None:
    seconds = {"2": 2, "0.5": 0.5, "250ms": 0.25, "2s": 2, "1m": 60, "1 min": 60, "1h": 3600, "1d": 86400}
    for text, value in seconds.items():
        network = parse_network(changed("{from: g}", f"{{from: g, latency: {text}}}"))
        assert network.outputs["q2"].latency == pytest.approx(value)
    assert parse_network(changed("s1: {", "s1: {deadline: 500us, ")).streams["s1"].deadline == pytest.approx(5e-4)


def test_a_target_may_be_a_percentile() -> None:
    output = parse_network(changed("{from: g}", "{from: g, latency: p99.9 < 1500ms}")).outputs["q2"]
    assert (output.latency, output.quantile) == (1.5, 0.999)
    for wrong in ("p30 < 2s", "p95 < soon", "q95 < 2s", "<"):
        with pytest.raises(NetworkError, match="must be a target such as 2s or p95 < 3s"):
            parse_network(changed("{from: g}", f"{{from: g, latency: '{wrong}'}}"))


def test_costs_rates_and_sizes_in_units() -> None:
    network = parse_network(changed("from: s1, cost: 1.0", "from: s1, cost: 0.5ms"))
    assert network.operators["a1"].cost == pytest.approx(5e-4)
    network = parse_network(changed("s1: {max_rate: 2.0}", "s1: {max_rate: 5k/s, bytes: 1.5 kB}"))
    assert (network.streams["s1"].max_rate, network.streams["s1"].bytes) == (5000.0, 1500.0)
    network = parse_network(changed("A: {cpu: 1.0}", "A: {cpu: 1.0, memory: 2GiB}"))
    assert network.nodes["A"].memory == 2**31
    assert parse_network(network_to_yaml(network)) == network


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("cost: 1.0", "cost: soon", "operators.a1.cost", "'soon' is not a duration; write seconds or a unit"),
        ("cost: 1.0", "cost: -1ms", "operators.a1.cost", "must be a number of at least 0, not -0.001"),
        ("cost: 1.0", "cost: '1.0'", "operators.a1.cost", "remove the quotes"),
        ("max_rate: 2.0", "max_rate: 5 apples", "streams.s1.max_rate", "is not a rate; write tuples per second"),
        ("cpu: 1.0", "cpu: 1.0, memory: much", "nodes.A.memory", "is not a size; write bytes or a unit"),
    ],
)
def test_wrong_units_are_refused_with_the_key(old: str, new: str, key: str, message: str) -> None:
    found = problems_of(GOOD.replace(old, new, 1))[0]
    assert found.key == key and message in found.message


def test_costs_left_out_are_unknown_and_selectivity_is_one_unless_it_is_to_be_measured() -> None:
    network = parse_network(changed("from: s1, cost: 1.0", "from: s1"))
    assert network.operators["a1"].cost is None
    assert network.operators["a1"].selectivity == 1.0
    for spelling in ("measure", "null", ""):
        network = parse_network(changed("from: s1, cost: 1.0", f"from: s1, selectivity: {spelling}"))
        assert network.operators["a1"].selectivity is None
        assert parse_network(network_to_yaml(network)) == network


def test_all_settings_of_every_section_survive_writing() -> None:
    text = GOOD.replace(
        "s1: {max_rate: 2.0}",
        "s1: {log: 'kafka://h1:9092,h2:9092/t', schema: 'a int', bytes: 7, deadline: 1m, priority: -2}",
    )
    text = text.replace("A: {cpu: 1.0}", "A: {cpu: 3, url: 'http://127.0.0.1:8470', spark: {a.b: true, c: 1e3}}")
    text = text.replace("from: s1, ", "from: s1, run: my.module:function, bytes: 12, ")
    text = text.replace("{from: g}", "{from: g, weight: 0, latency: p95 < 2s, tier: 3, sink: /somewhere}")
    network = parse_network(text)
    assert network.nodes["A"].spark == {"a.b": "true", "c": "1e3"}
    assert network.streams["s1"].priority == -2
    assert parse_network(network_to_yaml(network)) == network


class TestWholeFiles:
    """Files that cannot be read at all: one problem that says why."""

    def refuse(self, path: Path, data: bytes) -> Problem:
        path.write_bytes(data)
        with pytest.raises(NetworkError) as caught:
            load_network(path)
        assert caught.value.source == str(path)
        (problem,) = caught.value.problems
        return problem

    def test_the_file_name_is_the_default_name(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text("\ufeff" + GOOD.replace("name: good\n", ""), encoding="utf-8")
        assert load_network(path).name == "mine"
        assert load_network(str(path)).name == "mine"

    @pytest.mark.parametrize("data", [b"", b"# nothing\n", b"---\n", b"null\n"])
    def test_empty(self, tmp_path: Path, data: bytes) -> None:
        assert "is empty" in self.refuse(tmp_path / "n.yaml", data).message

    @pytest.mark.parametrize("data", [b"- version: 1\n", b"version 1\n", b"5\n"])
    def test_no_mapping(self, tmp_path: Path, data: bytes) -> None:
        problem = self.refuse(tmp_path / "n.yaml", data)
        assert "must be a mapping" in problem.message
        assert problem.line == 1

    def test_not_utf8(self, tmp_path: Path) -> None:
        problem = self.refuse(tmp_path / "n.yaml", b"version: 1\nname: caf\xe9\n")
        assert (problem.line, problem.message) == (2, "is not UTF-8 text; save it as UTF-8")

    def test_a_file_that_fits_into_no_memory_is_refused_by_size(self, tmp_path: Path) -> None:
        path = tmp_path / "big.yaml"
        path.touch()
        os.truncate(path, 1 << 40)  # a hole: it takes no space on the disk
        with pytest.raises(NetworkError, match="larger than 5 MB"):
            load_network(path)
        with pytest.raises(NetworkError, match="larger than 5 MB"):
            parse_network("#" * (MAX_BYTES + 1))

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        with pytest.raises(NetworkError, match="no such file"):
            load_network(tmp_path / "none.yaml")
        with pytest.raises(NetworkError, match="directory"):
            load_network(tmp_path)
