"""The check for dead code: it finds what nothing reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_dead_code import check

MAIN = 'COMMANDS: dict[str, str] = {"do-it": "group"}\nprint(COMMANDS)\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package with one command, which loads a module by name."""
    files = {
        "floodway/__init__.py": "",
        "floodway/cli/__init__.py": "",
        "floodway/cli/main.py": MAIN,
        "floodway/cli/do_it.py": 'TARGET = "floodway.work:run"\nprint(TARGET)\n',
        "floodway/work.py": "def run() -> None:\n    helper()\n\n\ndef helper() -> None:\n    pass\n\n\nrun()\n",
    }
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def test_what_commands_reach_is_alive(project: Path) -> None:
    assert check(project) == []


def test_a_module_that_nothing_imports_is_found(project: Path) -> None:
    (project / "floodway" / "alone.py").write_text("import floodway.work\n")
    assert check(project) == ["src/floodway/alone.py: no command imports this module"]


@pytest.mark.parametrize(
    "text",
    [
        "def idle() -> int:\n    return idle()\n",  # a call of itself does not count
        "class idle:\n    pass\n",
        "idle = 3\n",
        "class Alive:\n    def idle(self) -> None:\n        pass\n\n\nAlive()\n",
        "class Alive:\n    @property\n    def idle(self) -> int:\n        return 1\n\n\nAlive()\n",
        "class Alive:\n    def idle(self) -> None:\n        pass\n\n\nidle = Alive()\nprint(idle)\n",  # not the method
        "@dataclass\nclass Alive:\n    idle: int\n\n\nprint(Alive(idle=3))\n",  # given and never read
    ],
)
def test_a_definition_that_nothing_uses_is_found(project: Path, text: str) -> None:
    path = project / "floodway" / "work.py"
    path.write_text(path.read_text() + text)
    (line,) = check(project)
    assert line.startswith("src/floodway/work.py:") and line.endswith("nothing in src uses idle")


@pytest.mark.parametrize(
    "use",
    ["print(idle)\n", 'print("idle")\n', "from floodway.work import idle as other\n\nprint(other)\n", "work.idle()\n"],
)
def test_a_use_elsewhere_keeps_it_alive(project: Path, use: str) -> None:
    path = project / "floodway" / "work.py"
    path.write_text(path.read_text() + "\n\ndef idle() -> None:\n    pass\n")
    assert len(check(project)) == 1
    (project / "floodway" / "cli" / "do_it.py").write_text("import floodway.work\n" + use)
    assert check(project) == []


def test_documented_names_and_framework_hooks_are_alive(project: Path) -> None:
    path = project / "floodway" / "work.py"
    path.write_text(path.read_text() + "\n\ndef idle() -> None:\n    pass\n\n\ndef latestOffset() -> None:\n    pass\n")
    (project.parent / "README.md").write_text("Call `idle()` now and then.\n")
    assert check(project) == []


def test_a_definition_is_found_though_a_living_one_has_its_name(project: Path) -> None:
    twin = "def helper() -> None:\n    pass\n\n\ndef other() -> None:\n    pass\n\n\nother()\n"
    (project / "floodway" / "twin.py").write_text(twin)
    path = project / "floodway" / "work.py"
    text = path.read_text()
    path.write_text(f"import floodway.twin\n{text}")
    assert check(project) == ["src/floodway/twin.py:1: nothing in src uses helper"]
    path.write_text(f"from floodway import twin\n{text}\n\ntwin.helper()\n")
    assert check(project) == []
