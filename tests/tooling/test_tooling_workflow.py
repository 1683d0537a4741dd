"""The workflow for GitHub: it parses, pins its actions by a major version, and calls targets that the Makefile has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def jobs(path: Path) -> dict[str, Any]:
    """The jobs of a workflow by name."""
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = read["jobs"]
    return found


def steps(path: Path, key: str) -> list[str]:
    """What all steps of a workflow have under a key."""
    return [step[key] for job in jobs(path).values() for step in job["steps"] if key in step]


def unknown_targets(command: str) -> list[str]:
    """Words behind `make` that are neither a setting nor a target."""
    words = [word for line in re.findall(r"^make (.+)$", command, re.MULTILINE) for word in line.split()]
    return [word for word in words if "=" not in word and word not in TARGETS]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_it_calls_only_targets_that_there_are(path: Path) -> None:
    commands = steps(path, "run")
    assert [command for command in commands if not command.startswith("make ")] == []
    assert [target for command in commands for target in unknown_targets(command)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_jobs_end(path: Path) -> None:
    assert [action for action in steps(path, "uses") if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+", action)] == []
    assert all(job["timeout-minutes"] <= 360 for job in jobs(path).values())
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}


def test_every_supported_python_is_tested() -> None:
    tested = jobs(ROOT / ".github" / "workflows" / "test.yml")["test"]
    assert tested["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert any("make test" in step.get("run", "") for step in tested["steps"])


def test_a_target_that_is_not_there_is_found() -> None:
    assert unknown_targets("make test\nmake nothing ARGS=x") == ["nothing"]
