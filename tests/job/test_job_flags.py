"""One declaration of a job's options: every command has the same flags, and they can be written again."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import floodway
from floodway.cli.node import node
from floodway.cli.participant import participant
from floodway.cli.run import run
from floodway.cli.up import up
from floodway.errors import InputError, PlanningError
from floodway.job.options.accuracy import Accuracy
from floodway.job.options.flags import FLAGS, Kind, arguments, parsed
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from floodway.planning.plan import Objective
from floodway.spark.shed.options import refuse_unknown
from tests.oracles.plan_checks import example

OTHER: dict[str, Any] = {
    "mode": "observe",
    "target": Target(2.5, 0.95),
    "targets": {"q": Target(2.0), "p": Target(8.0, 0.95)},
    "controller": "latency",
    "planner": "solver",
    "epsilon": 0.1,
    "objective": Objective.FAIR,
    "headroom": 0.95,
    "workload": Path("rates.csv"),
    "plans": "lazy",
    "replan": True,
    "drop": "range",
    "lossless": True,
    "max_age": 600.0,
    "skip_when_lag": 5000,
    "shed_after": 90.0,
    "ask_executors": True,
    "share_by": {"s1": "tenant", "s2": "shop"},
    "weights": {"gold": 3.0, "free": 0.5},
    "keep_rare": 2,
    "rare_by": {"s1": "page"},
    "accuracy": {"s1": Accuracy("sum(price)", by="page", within=0.05, over="1m")},
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


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_takes_an_option_or_refuses_it_with_the_reason(kind: Kind) -> None:
    """The table of options and kinds: no option is passed over in silence."""
    for name, flag in FLAGS.items():
        words = arguments(JobOptions(**{name: OTHER[name]}), panels=PANELS)
        texts = tuple(word.partition("=")[2] for word in words)
        given = not words[0].startswith("--no-") if flag.form == "switch" else texts
        if kind in flag.refused:
            assert kind in ("participant", "shed")
            with pytest.raises(InputError, match=f"{flag.flag} means nothing to a {kind}: .+ Leave it out"):
                parsed(kind, {name: given})
        else:
            assert parsed(kind, {name: given}) == {name: OTHER[name]}


SHED_ONLY = {
    "name": "a network's is in its file",
    "options": "of a control law: a network takes a law with its defaults",
    "utility": "a network's outputs have weights",
    "floor": "of utilities",
    "key": "a network drops single tuples, or by --share-by",
    "identity": "Floodway's source has positions",
    "arrival": "Floodway's source has the time of the append",
    "timestamp": "likewise",
    "window": "a network finds the windows of its operators",
    "seed": "a network's salt is in its decision",
    "expires_after": "a network's decision is in the offset",
    "state_dir": "--state",
}
"""Arguments of `floodway.shed` that no other kind of job has, and what these have instead."""


def test_a_shed_has_every_option_that_it_does_not_refuse() -> None:
    taken = {
        "target_latency" if name == "target" else name for name, flag in FLAGS.items() if "shed" not in flag.refused
    }
    assert taken | SHED_ONLY.keys() == inspect.signature(floodway.shed).parameters.keys()
    assert not taken & SHED_ONLY.keys()


def test_a_setting_of_a_shed_that_makes_no_sense_is_refused_with_the_reason() -> None:
    for name, flag in FLAGS.items():
        if "shed" in flag.refused:
            with pytest.raises(InputError, match=f"floodway.clicks.{name} means nothing to a shed: .+ Leave it out"):
                refuse_unknown([f"spark.floodway.clicks.{name}"])


def test_what_was_not_given_is_left_out() -> None:
    assert parsed("participant", {"master": "yarn", "mode": None, "settings": ()}) == {"master": "yarn"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "enforced"}, "--mode 'enforced' is not known. Did you mean enforce?"),
        ({"target": "0"}, "--target 0 is not a duration above 0"),
        ({"target": "2 parsecs"}, "--target 2 parsecs is not a duration"),
        ({"targets": "2s"}, "--targets: '2s' is not OUTPUT=TARGET"),
        ({"targets": "q=soon"}, "--targets q= soon is not a duration above 0"),
        ({"headroom": "1.5"}, "--headroom 1.5 is not a share"),
        ({"retain_bytes": "many"}, "--retain-bytes many is not a size"),
        ({"skip_when_lag": "0"}, "--skip-when-lag 0 is not a whole number of at least 1"),
        ({"side_output": "-1"}, "--side-output -1 is not a whole number"),
        ({"settings": ("spark.ui.enabled",)}, "--conf: 'spark.ui.enabled' is not key=value"),
        ({"deadlines": "s1=2s s2=1s"}, "Put commas between them: --deadlines s1=2s,s2=1s"),
        ({"deadlines": "s1=2s,s1=3s"}, "'s1' is given twice"),
        ({"share_by": "tenant"}, "--share-by: 'tenant' is not STREAM=COLUMN. Write --share-by clicks=tenant"),
        ({"share_by": "s1=a,s1=b"}, "--share-by: 's1=b' is given twice"),
        ({"keep_rare": "0"}, "--keep-rare 0 is not a whole number of at least 1"),
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
    with pytest.raises(InputError, match="--max-age and a buffer exclude each other"):
        JobOptions(max_age=1.0, buffer="cwb").checked(network)
    with pytest.raises(InputError, match="--lossless and a buffer exclude each other"):
        JobOptions(lossless=True, deadlines={"s1": 1.0}).checked(network)
    with pytest.raises(InputError, match="--shed-after and --lossless exclude each other"):
        JobOptions(shed_after=9.0, lossless=True).checked(network)
    with pytest.raises(InputError, match="--lossless does not work with --controller pid"):
        JobOptions(lossless=True, controller="pid").checked(network)
    with pytest.raises(InputError, match="no stream"):
        JobOptions(deadlines={"s9": 1.0}).checked(network)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share_by": {"s2": "a"}}, "--share-by: no stream is called 's2'"),
        ({"weights": {"gold": 3.0}}, "--weights are of keys, and no key is named"),
        ({"share_by": {"s1": "a"}, "weights": {"gold": 0.0}}, "--weights: gold=0 is not above 0"),
        ({"rare_by": {"s1": "a"}}, "--keep-rare does not say how many"),
        ({"keep_rare": 1}, "--keep-rare keeps tuples of every key, and no key is named"),
        ({"keep_rare": 10**6, "rare_by": {"s1": "a"}}, "--keep-rare 1000000 is above 10,000"),
        ({"share_by": {"s1": "a"}, "buffer": "cwb"}, "--share-by and a buffer exclude each other"),
        ({"share_by": {"s1": "a"}, "lossless": True}, "--share-by and --lossless exclude each other"),
        ({"share_by": {"s1": "a"}, "drop": "range"}, "--share-by and --drop range exclude each other"),
        ({"keep_rare": 1, "rare_by": {"s1": "a"}, "on_loss": "skip"}, "--keep-rare and --on-loss skip exclude"),
    ],
)
def test_keys_that_cannot_be_shed_by_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        JobOptions(**options).checked(parse_network(NETWORK))
    assert JobOptions(share_by={"s1": "tenant"}, keep_rare=1).checked(parse_network(NETWORK))


def test_the_target_is_the_option_else_the_strictest_output() -> None:
    network = parse_network(NETWORK)
    assert JobOptions().target_for(network) == Target(3.0)
    assert JobOptions(target=Target(1.5)).target_for(network) == Target(1.5)
    assert JobOptions().target_for(network, ["q"]) == Target(4.0)
    own = JobOptions(targets={"q": Target(8.0, 0.95)}, target=Target(9.0))
    assert own.target_for(network, ["q"]) == Target(8.0, 0.95) == own.target_for(network)
    assert own.target_for(network, ["p"]) == Target(9.0)
    p95 = parse_network(NETWORK.replace("latency: 4s", "latency: p95 < 3.5s"))
    assert JobOptions().target_for(p95) == Target(3.5, 0.95)
    with pytest.raises(InputError, match="--targets: no output is called 'r'"):
        JobOptions(targets={"r": Target(1.0)}).checked(network)
    bare = parse_network(NETWORK.replace(", latency: 4s", "").replace(", latency: 3s", ""))
    assert JobOptions().target_for(bare) == Target(2.0)


def test_a_run_plans_finely_where_rates_were_seen(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("s2,s1\n" + "\n".join(f"{0.9 + i / 1000},{1.0 + i / 500}" for i in range(50)))
    network = example("figure1")
    whole, adapted = (JobOptions(planner="fit", workload=file).planner_of(network) for file in (None, path))
    assert adapted.size < whole.size
    assert adapted.plan({"s1": 1.0, "s2": 0.9}).score >= 0.95 * whole.plan({"s1": 1.0, "s2": 0.9}).score
    with pytest.raises(InputError, match="'exact' planner does not ask how likely rates are"):
        JobOptions(workload=path).checked(network)
