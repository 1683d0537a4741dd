"""The package asks for little: no Spark, six libraries, and one line where an extra is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from floodway.errors import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", requirement)[0].replace("-", "_") for requirement in requirements}


def test_installing_floodway_touches_no_spark() -> None:
    assert len(PROJECT["dependencies"]) <= 6
    assert "pyspark" not in names(PROJECT["dependencies"])
    assert not [r for r in PROJECT["optional-dependencies"]["spark"] if "==" in r]


@pytest.mark.parametrize("library", EXTRAS)
def test_every_optional_library_is_in_the_extra_that_its_error_names(library: str) -> None:
    declared = names(PROJECT["optional-dependencies"][EXTRAS[library]])
    assert any(name.startswith(library) for name in declared)


def without(library: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that has not got this library."""
    blocked = f"import sys; sys.modules[{library!r}] = None; {code}"
    return subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, cwd=ROOT, check=False)


def test_shed_without_spark_says_what_to_install() -> None:
    answer = without("pyspark", "import floodway; floodway.shed")
    assert answer.stderr.splitlines()[-1].endswith("Run: pip install 'floodway[spark]'")


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("highspy", "plan examples/networks/figure1.yaml --rates s1=1,s2=1"),
        ("matplotlib", "explain examples/networks/figure1.yaml --rates s1=1,s2=1 --picture unused.svg"),
        ("starlette", "dashboard examples"),
    ],
)
def test_a_command_without_its_library_is_one_line(library: str, command: str) -> None:
    answer = without(
        library, f"sys.argv = {['floodway', *command.split()]!r}; from floodway.cli.main import main; main()"
    )
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.strip() == (
        f"error: this needs {library}, which is not installed. Run: pip install 'floodway[{EXTRAS[library]}]'"
    )
