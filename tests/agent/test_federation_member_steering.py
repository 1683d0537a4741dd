"""What a participant drops: planned as a node plans, by what fragments are worth, and after partners were asked."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import pytest

from floodway.agent.federation.engine import Measure
from floodway.agent.federation.member_steering import MemberSteering, Shed, target_of, values_of
from floodway.agent.loop.steering import FragmentBatch
from floodway.contracts.contract import Contract, Service
from floodway.contracts.cost import InFlight
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import Held
from floodway.contracts.participant_state import participant
from floodway.job.decision import Mode
from floodway.job.options.options import JobOptions
from floodway.network.model import Node
from floodway.planning.plan import Objective
from floodway.units import PPM

SPECS = {name: FragmentSpec(name, "A", "sum", {"input": f"logs/{name}"}, f"outputs/{name}") for name in ("f0", "f1")}
COST = 0.01


def steering(options: JobOptions | None = None, *, patience: float = 0.0, cpu: float = 1.0) -> MemberSteering:
    chosen = options or JobOptions()
    return MemberSteering(Node("A", cpu), chosen, target_seconds=3.0, patience_seconds=patience)


def measures(rates: Mapping[str, float], waiting: Mapping[str, int] | None = None) -> dict[str, Measure]:
    return {
        name: Measure({f"{name}.input": rate}, COST, 1.0, waiting={f"{name}.input": (waiting or {}).get(name, 0)})
        for name, rate in rates.items()
    }


def decided(
    one: MemberSteering,
    found: Mapping[str, Measure],
    values: Mapping[str, float] | None = None,
    *,
    now: float = 0.0,
    asking: bool = False,
    mode: Mode = "enforce",
) -> Shed:
    return one.decide(now, SPECS.values(), values or {}, found, asking=asking, mode=mode)


def keeps(shed: Shed) -> dict[str, float]:
    return {at: one.keep_ppm / PPM for at, one in shed.decision.streams.items()}


def test_what_is_worth_least_goes_first_and_only_as_much_as_needed() -> None:
    shed = decided(steering(), measures({"f0": 80.0, "f1": 60.0}), {"f0": 2.0, "f1": 4.0})
    assert keeps(shed) == pytest.approx({"f0.input": 0.5, "f1.input": 1.0})
    assert shed.keeps == pytest.approx({"f0": 0.5}) and shed.decision.mode == "enforce"


def test_what_fits_is_kept_whole() -> None:
    shed = decided(steering(cpu=2.0), measures({"f0": 80.0, "f1": 60.0}))
    assert keeps(shed) == {"f0.input": 1.0, "f1.input": 1.0} and shed.keeps == {}


def test_the_objective_is_that_of_any_job() -> None:
    fair = steering(JobOptions(objective=Objective.FAIR))
    shed = decided(fair, measures({"f0": 80.0, "f1": 80.0}))
    assert shed.keeps == pytest.approx({"f0": 100 / 160, "f1": 100 / 160})


def test_partners_are_asked_before_tuples_are_dropped() -> None:
    one, load = steering(patience=10.0), measures({"f0": 200.0})
    for now, asking, dropped in ((0.0, True, False), (9.0, False, False), (11.0, True, False), (12.0, False, True)):
        assert bool(decided(one, load, now=now, asking=asking).keeps) is dropped, now
    # What has begun goes on through later offers, and ends when the load fits.
    assert decided(one, load, now=13.0, asking=True).keeps
    assert not decided(one, measures({"f0": 50.0}), now=14.0).keeps
    assert not decided(one, load, now=15.0).keeps


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_participant_that_is_switched_drops_nothing(mode: Mode) -> None:
    shed = decided(steering(), measures({"f0": 200.0}), mode=mode)
    assert shed.decision.mode == mode and shed.keeps == {}
    assert shed.decision.streams["f0.input"].keep_ppm == pytest.approx(PPM / 2)


def batch(seconds: float, tuples: int) -> FragmentBatch:
    counts = {"f0.input": tuples}
    return FragmentBatch("f0", counts, counts, seconds, None, {})


def test_batches_that_take_longer_than_planned_lower_the_capacity() -> None:
    one, load = steering(), measures({"f0": 90.0})
    assert not decided(one, load).keeps
    for number, size in enumerate((50, 100, 60, 90, 70, 100, 50, 80)):
        # Twice the CPU time that the costs say, and a tenth of a second for every batch.
        one.observe(float(number), [batch(0.1 + 2 * COST * size, size)], load)
    shed = decided(one, load, now=9.0)
    assert shed.keeps["f0"] < 0.6
    # The same controllers go on when a fragment comes.
    both = decided(one, measures({"f0": 90.0, "f1": 1.0}), now=10.0)
    assert both.steered is not None and shed.steered is not None
    assert both.steered.scale == shed.steered.scale < 0.6


def test_a_fast_machine_is_planned_for_no_more_than_its_member_gives() -> None:
    one, load = steering(), measures({"f0": 200.0})
    decided(one, load)
    for number, size in enumerate((50, 100, 60, 90, 70, 100)):
        one.observe(float(number), [batch(0.01 + 0.1 * COST * size, size)], load)
    assert decided(one, load, now=9.0).keeps["f0"] == pytest.approx(0.5)


def test_what_waits_counts_as_much_as_what_arrives() -> None:
    # 3 s of target are batches of 2 s: 400 tuples that wait are 200 tuples/s.
    shed = decided(steering(), measures({"f0": 50.0}, {"f0": 400}))
    assert shed.keeps == pytest.approx({"f0": 0.5})


def test_without_a_fragment_there_is_nothing_to_decide() -> None:
    one = steering()
    assert decided(one, measures({"f0": 200.0})).keeps
    assert decided(one, {}).decision.streams == {}


def test_values_and_targets_follow_from_the_contracts() -> None:
    contracts = [
        Contract("A", "B", 2.0, 5.0),
        Contract("B", "A", 3.0, 3.0, service=Service(max_delay_seconds=4.0, penalty=1.5)),
    ]
    machine = participant("A", InFlight(), contracts, [Task("f0", Load(0.1)), Task("f1", Load(0.1))])
    machine, _ = step(machine, Held(Task("g", Load(0.1), origin="B"), "B", 3.0), now=0.0)
    specs = {**SPECS, "f1": FragmentSpec("f1", "A", "sum", {"input": "logs/f1"}, "outputs/f1", weight=7.0)}
    assert values_of(machine, specs) == {"f0": 5.0, "f1": 7.0, "g": 4.5}
    assert target_of(machine, None) == 4.0 and target_of(machine, 2.0) == 2.0
    assert target_of(participant("C", InFlight(), []), None) < inf
