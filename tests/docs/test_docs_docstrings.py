"""Every public module, class, function and method says what it is; every command shows an example."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from floodway.cli import main
from tests.docs.pages import ROOT, understood

SOURCE = ROOT / "src" / "floodway"
MODULES = sorted(SOURCE.rglob("*.py"))
# What begins with an underscore is private, or says what Python says of it.
INHERITED = re.compile(r"^_")


def protocols() -> list[set[str]]:
    """The methods of every protocol of the package, which says what they are for; what has them all implements it."""
    classes = [
        item
        for path in MODULES
        for item in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(item, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in item.bases)
    ]
    return [_functions(item) for item in classes]


def _functions(item: ast.ClassDef) -> set[str]:
    return {one.name for one in item.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}


PROTOCOLS = protocols()


def undocumented(path: Path) -> list[str]:
    """Public names of a module without a docstring, as `Class.method`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [] if ast.get_docstring(tree) else ["<module>"]
    for item in tree.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not item.name.startswith("_"):
            if not ast.get_docstring(item):
                found.append(item.name)
            if isinstance(item, ast.ClassDef):
                found += [f"{item.name}.{name}" for name in _methods(item)]
    return found


def _methods(item: ast.ClassDef) -> list[str]:
    """Public methods without a docstring; what implements a method of a base class or a protocol inherits its text."""
    own = _functions(item)
    inherited = {name for methods in PROTOCOLS if len(methods) > 1 and methods <= own for name in methods}
    bare = [
        method.name
        for method in item.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not INHERITED.match(method.name)
        and method.name not in inherited
        and not ast.get_docstring(method)
        and not any("overload" in ast.unparse(decorator) for decorator in method.decorator_list)
    ]
    bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in item.bases} - {"Protocol", "Generic", "ABC"}
    return [] if bases else bare


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_names_have_docstrings(path: Path) -> None:
    assert undocumented(path) == []


WITH_EXAMPLES = [path for path in MODULES if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_examples_in_docstrings_do_what_they_show(path: Path) -> None:
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


def test_a_missing_docstring_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("def f(): ...\nclass C:\n    'c'\n    def m(self): ...\n    def _p(self): ...\n")
    assert undocumented(path) == ["<module>", "f", "C.m"]


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_an_example_that_it_understands(name: str) -> None:
    answer = CliRunner().invoke(app(), [name, "--help"])
    assert answer.exit_code == 0
    text = " ".join(answer.stdout.split())
    assert f"Example: floodway {name}" in text, f"floodway {name} --help has no line 'Example: floodway {name} …'"
    (command,) = [one for one in app().registered_commands if one.name == name]
    example = re.search(rf"Example: (floodway {name}\b.*)", inspect.getdoc(command.callback) or "")
    assert example is not None
    assert understood(shlex.split(example.group(1))[1:]) == ""


def app() -> Typer:
    """The application with all commands, registered once."""
    if not main.app.registered_commands:
        main.register()
    return main.app
