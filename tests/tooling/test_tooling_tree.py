"""What is committed fits every machine: no registry's address, no path of one machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Written in two halves, so that this file is not found by its own search.
REGISTRIES = [
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "repo1" + ".maven",
    "maven" + ".org",
    "npmjs" + ".org",
]
MACHINE_PATH = re.compile(r"(?<![\w.~*])/" + r"(?:work|root|home|tmp|Users)" + r"/\w")


def committed() -> list[Path]:
    """Text files that git knows, except those deleted in the working tree."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in names.split("\0") if name]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()]


def test_no_registry_address_is_committed() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {registry}"
        for file in committed()
        for registry in REGISTRIES
        if registry in file.read_text(errors="replace")
    ]
    assert found == []


def test_no_path_of_one_machine_is_committed() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in committed()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(("text", "is_path"), [("see /" + "tmp/x", True), ("src/home/x", False), ("/api/plan", False)])
def test_what_counts_as_a_path_of_one_machine(text: str, is_path: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is is_path


def test_make_without_a_target_lists_all_targets() -> None:
    answer = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("setup", "demo", "test", "lint", "bench", "reproduce", "lock", "clean"):
        assert f"make {target} " in answer.stdout


def test_without_a_python_make_says_so_in_one_line(tmp_path: Path) -> None:
    """Only the shell's own tools on the PATH: the Makefile finds no Python and says what to do."""
    make = shutil.which("make")
    assert make is not None
    for tool in ("sh", "grep", "sed"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    environ = {"PATH": str(tmp_path)}
    answer = subprocess.run([make, "-s", "setup"], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[0].startswith("Floodway needs Python >= 3.11 and found none")
