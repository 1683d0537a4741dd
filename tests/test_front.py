"""What users import: the names of the package and of its rooms, and that the documentation needs no others."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import floodway
from tests.docs.pages import ROOT, blocks

ROOMS = ("control", "network", "planning", "job", "spark")
FRONTS = ("floodway", *(f"floodway.{room}" for room in ROOMS))


@pytest.mark.parametrize("name", FRONTS)
def test_a_front_offers_what_it_lists(name: str) -> None:
    front = import_module(name)
    assert sorted(front.__all__) == front.__all__
    assert set(front.__all__) <= set(dir(front))
    for one in front.__all__:
        assert getattr(front, one) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = front.nothing


@pytest.mark.parametrize("name", FRONTS)
def test_types_and_names_agree(name: str) -> None:
    """What a type checker sees is what is loaded."""
    front = import_module(name)
    (shown,) = (node for node in parsed(front).body if isinstance(node, ast.If))
    seen = {
        alias.name: statement.module
        for statement in shown.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert sorted({*seen, "__version__"} if name == "floodway" else seen) == front.__all__
    for one, module in seen.items():
        assert getattr(import_module(str(module)), one) is getattr(front, one)


def test_the_names_of_the_readme_are_there() -> None:
    assert {"shed", "WindowDrop", "Controller", "estimates", "load_network"} <= set(dir(floodway))
    assert "lazy" not in dir(floodway)


def parsed(front: ModuleType) -> ast.Module:
    return ast.parse(Path(str(front.__file__)).read_text(encoding="utf-8"))


def imports(source: str) -> list[tuple[str, str]]:
    """(module, name) of everything that a text imports from Floodway."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "floodway":
            found += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "floodway"]
    return found


PLACES = {str(block): block.body for block in blocks("python")} | {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")
}


@pytest.mark.parametrize("place", PLACES)
def test_documentation_and_examples_import_from_a_front(place: str) -> None:
    for module, name in imports(PLACES[place]):
        assert module in FRONTS, f"{place} imports {name or module} from {module}"
        assert not name or name in import_module(module).__all__, f"{module} does not offer {name}"
