"""The import rules hold, and the checker that says so really fails when they do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {folder.parent.name for folder in (ROOT / "src" / "floodway").glob("*/__init__.py")}


def contracts() -> dict[str, dict[str, list[str]]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {contract["type"]: contract for contract in project["tool"]["importlinter"]["contracts"]}


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    environ = {**os.environ, "PYTHONPATH": str(project / "src")}
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def empty_rooms(tmp_path: Path) -> Path:
    """The project's rooms, with nothing in them, and its rules, to be broken."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room in (".", *ROOMS):
        (tmp_path / "src" / "floodway" / room).mkdir(parents=True)
        (tmp_path / "src" / "floodway" / room / "__init__.py").touch()
    return tmp_path


def test_importing_floodway_loads_nothing_heavy() -> None:
    heavy = ["pyspark", "numpy", "highspy", "pandas", "pyarrow", "matplotlib", "pydantic"]
    code = f"import floodway, sys; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_layers_name_every_room() -> None:
    layers = [room.strip() for layer in contracts()["layers"]["layers"] for room in layer.split("|")]
    assert sorted(layers) == sorted(f"floodway.{room}" for room in ROOMS)


def test_pyspark_is_forbidden_in_every_room_but_one() -> None:
    forbidden = contracts()["forbidden"]
    assert forbidden["forbidden_modules"] == ["pyspark"]
    assert sorted(forbidden["source_modules"]) == sorted(f"floodway.{room}" for room in ROOMS - {"spark"})


def test_empty_rooms_keep_the_rules(empty_rooms: Path) -> None:
    answer = lint_imports(empty_rooms)
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


@pytest.mark.parametrize(
    ("room", "imports"),
    [
        ("network", "floodway.planning"),  # against the direction
        ("planning", "floodway.buffering"),  # a room on the same level
        ("simulation", "floodway.spark"),  # likewise
        ("spark", "floodway.cli"),
        ("agent", "pyspark"),  # the Spark boundary
    ],
)
def test_a_broken_rule_is_found(empty_rooms: Path, room: str, imports: str) -> None:
    (empty_rooms / "src" / "floodway" / room / "intruder.py").write_text(f"import {imports}\n")
    answer = lint_imports(empty_rooms)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert f"floodway.{room}.intruder -> {imports}" in answer.stdout
    assert "1 broken" in answer.stdout
