"""Plan files: the same look-ups after reading back, and a clear refusal of anything else."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.planning import plan_file
from floodway.planning.factory import make_planner
from floodway.planning.objectives import ObjectivePlanner
from floodway.planning.plan import Objective, Planner
from floodway.planning.program import Program
from tests.oracles.plan_checks import example

KINDS = ("exact", "solver", "solver-w")


def made(kind: str, network: str = "figure1") -> Planner:
    planner = make_planner(example(network), kind, epsilon=0.1)
    for rates in np.random.default_rng(1).uniform(0, 2, (50, len(planner.program.streams))):
        planner.keeps(rates)  # so that the exact planner's map has something in it
    return planner


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", ["figure1", "split", "diamond"])
def test_the_same_look_ups_after_reading_back(kind: str, network: str, tmp_path: Path) -> None:
    planner = made(kind, network)
    plan_file.save(planner, tmp_path / "plans")
    again = plan_file.load(tmp_path / "plans", Program(example(network)))
    assert again.name == kind and again.size == planner.size
    assert getattr(again, "achieved_epsilon", None) == getattr(planner, "achieved_epsilon", None)
    for rates in np.random.default_rng(2).uniform(0, 3, (50, len(planner.program.streams))):
        assert again.keeps(rates).tolist() == pytest.approx(planner.keeps(rates).tolist(), abs=1e-12)
    assert [path.name for path in tmp_path.iterdir()] == ["plans"]


def test_a_loaded_map_needs_no_solve(tmp_path: Path) -> None:
    plan_file.save(made("exact"), tmp_path / "plans")
    again = plan_file.load(tmp_path / "plans", Program(example("figure1")))
    again.keeps(np.array([1.0, 1.0]))
    assert getattr(again, "misses", None) == 0


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    plan_file.save(made("solver"), tmp_path / "plans")
    body = (tmp_path / "plans").read_bytes()
    program = Program(example("figure1"))
    for length in {0, 1, 7, 13, 14, 60, len(body) // 2, len(body) - 1}:
        with pytest.raises(plan_file.PlanFileError, match=r"not a Floodway plan file|truncated"):
            plan_file.decode(body[:length], program)


def test_every_flipped_byte_is_refused() -> None:
    program = Program(example("figure1"))
    body = plan_file.encode("exact", program, *made_exact_arrays(program))
    for at in range(len(body)):
        with pytest.raises(plan_file.PlanFileError):
            plan_file.decode(body[:at] + bytes([body[at] ^ 0x41]) + body[at + 1 :], program)


def made_exact_arrays(program: Program) -> tuple[plan_file.Meta, plan_file.Arrays]:
    return {}, {"checks": np.zeros(1, dtype=np.int64), "rows": np.ones((2, 3))}


def test_another_network_headroom_or_version_is_refused(tmp_path: Path) -> None:
    plan_file.save(made("solver"), tmp_path / "plans")
    for program in (Program(example("figure1-short")), Program(example("figure1"), headroom=0.9)):
        with pytest.raises(plan_file.PlanFileError, match="another network"):
            plan_file.load(tmp_path / "plans", program)
    body = bytearray((tmp_path / "plans").read_bytes())
    body[8:10] = struct.pack("<H", 7)
    with pytest.raises(plan_file.PlanFileError, match="version 7"):
        plan_file.decode(bytes(body), Program(example("figure1")))


def with_header(change: bytes, to: bytes, body: bytes) -> bytes:
    """The file with something exchanged for something of the same length, and a right checksum."""
    assert change in body and len(change) == len(to)
    changed = body[:-4].replace(change, to, 1)
    return changed + struct.pack("<I", zlib.crc32(changed))


@pytest.mark.parametrize(
    ("change", "to", "says"),
    [
        (b'"exact"', b'"wrong"', "unknown planner"),
        (b'"<f8", [2, 3]', b'"<f8", [9, 3]', "ends inside"),
        (b'"<f8", [2, 3]', b'"<f8", [1, 3]', "more than it declares"),
        (b'"<f8", [2, 3]', b'"|O8", [2, 3]', "no planner writes"),
        (b'"<f8", [2, 3]', b'"<f8", [-2,3]', "no planner writes"),
        (b'{"planner"', b'["planner"', "header"),
    ],
)
def test_headers_that_lie_are_refused(change: bytes, to: bytes, says: str) -> None:
    program = Program(example("figure1"))
    body = plan_file.encode("exact", program, *made_exact_arrays(program))
    with pytest.raises(plan_file.PlanFileError, match=says):
        plan_file.decode(with_header(change, to, body), program)


@pytest.mark.parametrize("key", ["first_child", "plan", "plans", "scale", "whole", "error", "mix"])
def test_arrays_that_do_not_fit_together_are_refused(key: str) -> None:
    planner = made("solver")
    assert isinstance(planner, plan_file.Storable)
    meta, arrays = planner.to_arrays()
    for wrong in (arrays[key][:-1], np.full_like(arrays[key], 99), np.zeros((2, 2, 2))):
        with pytest.raises(plan_file.PlanFileError):
            type(planner).from_arrays(planner.program, meta, {**arrays, key: wrong})
    with pytest.raises(plan_file.PlanFileError):
        type(planner).from_arrays(planner.program, meta, {k: a for k, a in arrays.items() if k != key})


def test_files_that_are_not_there_or_something_else(tmp_path: Path) -> None:
    program = Program(example("figure1"))
    (tmp_path / "text").write_text("version: 1\n" * 10)
    with pytest.raises(plan_file.PlanFileError, match="not a Floodway plan file"):
        plan_file.load(tmp_path / "text", program)
    with pytest.raises(plan_file.PlanFileError, match="cannot be read"):
        plan_file.load(tmp_path / "missing", program)
    with pytest.raises(InputError, match="cannot be written"):
        plan_file.save(made("exact"), tmp_path / "no" / "such" / "folder")


def test_what_prepares_nothing_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing that could be saved"):
        plan_file.save(ObjectivePlanner(Program(example("figure1")), Objective.FAIR), tmp_path / "plans")


def test_fingerprint_follows_what_plans_depend_on() -> None:
    same = plan_file.fingerprint(Program(example("figure1")))
    assert same == plan_file.fingerprint(Program(example("figure1")))
    assert same != plan_file.fingerprint(Program(example("figure1-short")))
