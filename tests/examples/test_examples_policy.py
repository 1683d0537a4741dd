"""The policy a user writes keeps a plant near its target, resumes after a restart, and is as short as promised."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from random import Random
from statistics import fmean
from types import ModuleType

import pytest

import floodway
from floodway.control.base import Observation
from floodway.control.loop import Loop
from tests.control.plant import Engine, run_batches

PATH = Path(__file__).resolve().parents[2] / "examples" / "my_policy.py"


@pytest.fixture(scope="module")
def policy() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("my_policy", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_policy"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_it_holds_the_latency_below_the_target_on_the_mean_and_keeps_the_engine_busy(policy: ModuleType) -> None:
    batches = run_batches(
        policy.Halving(target_seconds=2.0), Engine(), rate=lambda time: 2_000.0, seconds=300.0, rng=Random(3)
    )
    settled = [batch for batch in batches if batch.start_seconds > 60.0]
    assert 1.0 < fmean(batch.latency_seconds for batch in settled) < 2.0
    assert fmean(batch.kept / batch.offered for batch in settled) < 0.5
    assert sum(batch.kept for batch in settled) / 240.0 > 500.0


def test_it_drops_nothing_below_capacity(policy: ModuleType) -> None:
    batches = run_batches(
        policy.Halving(target_seconds=2.0), Engine(), rate=lambda time: 300.0, seconds=60.0, rng=Random(3)
    )
    assert all(batch.kept == batch.offered for batch in batches)


def test_it_resumes_and_plugs_into_the_one_line(policy: ModuleType, tmp_path: Path) -> None:
    loop = Loop(policy.Halving(target_seconds=2.0))
    loop.step(Observation(0.0, 1000, latency_seconds=5.0, kept=800))
    again = Loop(policy.Halving(target_seconds=2.0), loop.snapshot())
    assert again.step(Observation(1.0, 1000)).admit == 400.0
    shed = floodway.shed("x", target_latency=2.0, controller=policy.Halving(2.0), state_dir=str(tmp_path))
    assert shed.settings.controller.name == "halving"


def test_it_is_about_twenty_lines() -> None:
    (cls,) = [
        item for item in ast.parse(PATH.read_text(encoding="utf-8")).body if getattr(item, "name", "") == "Halving"
    ]
    assert cls.end_lineno is not None
    assert cls.end_lineno - cls.lineno <= 25
