"""One declaration of a job's options: every command has the same flags, and they can be written again."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, get_args

import pytest

from floodway.cli.node import node
from floodway.cli.participant import participant
from floodway.cli.run import run
from floodway.cli.up import up
from floodway.errors import InputError, PlanningError
from floodway.job.options.flags import FLAGS, Kind, arguments, parsed
from floodway.job.options.options import JobOptions
from floodway.job.options.targets import Target
from floodway.network.file import parse_network
from floodway.planning.plan import Objective

OTHER: dict[str, Any] = {
    "mode": "observe",
    "target": Target(2.5, 0.95),
    "controller": "latency",
    "planner": "solver",
    "epsilon": 0.1,
    "objective": Objective.FAIR,
    "headroom": 0.95,
    "replan": True,
    "drop": "range",
    "side_output": 20,
    "on_loss": "skip",
    "retain_bytes": 10**6,
    "retain_seconds": 7200.0,
    "buffer": "cwb",
    "scheduler": "fifo",
    "adaptor": "red",
    "cleaner": False,
    "queue_limit": 500,
    "miss_ratio": 0.05,
    "deadlines": {"s1": 2.0, "s2/0": 0.5},
    "master": "spark://host:7077",
    "settings": {"spark.a": "1", "spark.b": "x=y,z"},
    "page": "127.0.0.1:8800",
    "open_page": True,
    "otlp": "http://127.0.0.1:4318",
}
NETWORK = """
version: 1
streams: {s1: {max_rate: 10, deadline: 3s}}
nodes: {A: {}}
operators: {a: {node: A, from: s1, cost: 0.01}}
outputs: {q: {from: a, latency: 4s}, p: {from: a, latency: 3s}}
"""
PANELS = sorted({flag.panel for flag in FLAGS.values()})


def test_every_option_has_a_flag_and_every_flag_an_option() -> None:
    assert list(FLAGS) == [one.name for one in fields(JobOptions)] == list(OTHER)
    for flag in FLAGS.values():
        assert set(flag.refused) <= set(get_args(Kind))


@pytest.mark.parametrize("command", [run, node, up, participant])
def test_every_command_that_starts_a_job_has_every_flag(command: Any) -> None:
    offered = inspect.signature(command).parameters
    assert "given" not in offered
    for name, flag in FLAGS.items():
        (told,) = offered[name].annotation.__metadata__
        assert (told.help, told.rich_help_panel) == (flag.help, flag.panel)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_written_again_means_the_same(name: str) -> None:
    options = JobOptions(**{name: OTHER[name]})
    words = arguments(options, panels=PANELS)
    assert words, name
    values: dict[str, Any] = {}
    for word in words:
        flag, equals, text = word.partition("=")
        found = next(key for key, one in FLAGS.items() if flag in (one.flag, f"--no-{one.flag[2:]}"))
        if FLAGS[found].form == "several":
            values[found] = (*values.get(found, ()), text)
        else:
            values[found] = text if equals else not flag.startswith("--no-")
    assert JobOptions(**parsed("run", values)) == options
    assert arguments(options, panels=[panel for panel in PANELS if panel != FLAGS[name].panel]) == []
    assert arguments(JobOptions(), panels=PANELS) == []


def test_what_makes_no_sense_is_refused_with_the_reason() -> None:
    refused = {name: flag for name, flag in FLAGS.items() if "participant" in flag.refused}
    assert "buffer" in refused and "master" not in refused
    for name, flag in refused.items():
        given = False if flag.form == "switch" else "x"
        with pytest.raises(InputError, match=f"{flag.flag} means nothing to a participant: .+ Leave it out"):
            parsed("participant", {name: given})
    assert parsed("participant", {"master": "yarn", "mode": None, "settings": ()}) == {"master": "yarn"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "enforced"}, "--mode 'enforced' is not known. Did you mean enforce?"),
        ({"target": "0"}, "--target 0 is not a duration above 0"),
        ({"target": "2 parsecs"}, "--target 2 parsecs is not a duration"),
        ({"headroom": "1.5"}, "--headroom 1.5 is not a share"),
        ({"retain_bytes": "many"}, "--retain-bytes many is not a size"),
        ({"side_output": "-1"}, "--side-output -1 is not a whole number"),
        ({"settings": ("spark.ui.enabled",)}, "--conf: 'spark.ui.enabled' is not key=value"),
        ({"deadlines": "s1=2s s2=1s"}, "Put commas between them: --deadlines s1=2s,s2=1s"),
        ({"deadlines": "s1=2s,s1=3s"}, "'s1' is given twice"),
    ],
)
def test_wrong_text_is_refused_with_the_flag(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed("run", given)
    assert message.lower() in str(caught.value).lower()


def test_options_are_checked_against_the_network_before_anything_starts() -> None:
    network = parse_network(NETWORK)
    assert JobOptions().checked(network) == network
    assert JobOptions(deadlines={"s1": 1.0}).checked(network).streams["s1"].deadline == 1.0
    with pytest.raises(InputError, match="controller 'bacth' is not known"):
        JobOptions(controller="bacth").checked(network)
    with pytest.raises(PlanningError, match="the 'fit' planner prepares plans for weighted throughput only"):
        JobOptions(planner="fit", objective=Objective.FAIR).checked(network)
    with pytest.raises(InputError, match="no stream"):
        JobOptions(deadlines={"s9": 1.0}).checked(network)


def test_the_target_is_the_option_else_the_strictest_output() -> None:
    network = parse_network(NETWORK)
    assert JobOptions().target_for(network) == Target(3.0)
    assert JobOptions(target=Target(1.5)).target_for(network) == Target(1.5)
    bare = parse_network(NETWORK.replace(", latency: 4s", "").replace(", latency: 3s", ""))
    assert JobOptions().target_for(bare) == Target(2.0)
