"""The lock files hold what pyproject.toml asks for, exactly and with hashes."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
ASKED = [
    *((text, "requirements.lock") for text in (*PROJECT["project"]["dependencies"], *GROUPS["dev"])),
    *((text, "requirements-java.lock") for text in GROUPS["java"]),
]


def locked(lock: str) -> list[Requirement]:
    """The lock's entries that apply to this machine."""
    lines = (ROOT / lock).read_text().splitlines()
    entries = [Requirement(line.removesuffix("\\").strip()) for line in lines if re.match(r"[a-z0-9]", line)]
    environment = {key: str(value) for key, value in default_environment().items()}
    return [entry for entry in entries if entry.marker is None or entry.marker.evaluate(environment)]


def exact(entry: Requirement) -> str:
    (pin,) = entry.specifier
    assert pin.operator == "=="
    return pin.version


@pytest.mark.parametrize(("text", "lock"), ASKED)
def test_every_dependency_is_locked_within_its_bounds(text: str, lock: str) -> None:
    asked = Requirement(text)
    pins = [exact(entry) for entry in locked(lock) if entry.name == canonicalize_name(asked.name)]
    assert len(pins) == 1
    assert asked.specifier.contains(pins[0])


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-java.lock"])
def test_every_entry_is_exact_and_has_a_hash(lock: str) -> None:
    entries = re.split(r"^(?=[a-z0-9])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==[^ ]+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_environment_runs_the_locked_versions() -> None:
    different = {
        entry.name: (version(entry.name), exact(entry))
        for entry in locked("requirements.lock")
        if version(entry.name) != exact(entry)
    }
    assert different == {}
