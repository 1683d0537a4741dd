"""Find code that no command and no front of the package reaches: modules that nothing imports, names that nothing uses.

Run `python scripts/check_dead_code.py`. Tests do not count as users.

A *module* is alive if imports lead to it from `floodway` or from a command. An import inside a function counts, and so
does a string with a module's name (experiments and commands are loaded by name). A *definition* is alive if its name is
used outside its own body: in `src` or `examples` as a name, an attribute or a string that is exactly this name
(`__all__`, `getattr`), or in the code of the documentation, which is what users call. A method or a field of a
dataclass is alive only as an attribute or a string: a function of its name keeps no method alive, and an argument no
field. Of a name that several modules define, each must be used in its own module or taken from it by another; methods
are not resolved, so one that shares its name with a living one is missed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = "floodway"
ROOTS = (PACKAGE, f"{PACKAGE}.cli.main")
PLAIN_DECORATORS = {
    "abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "dataclass", "lru_cache", "override",
    "property", "runtime_checkable", "setter", "staticmethod", "total_ordering",
}  # fmt: skip
"""Decorators that do not call what they decorate: any other may hand it to a framework, and counts as a use."""
CODE = re.compile(r"```python[^\n]*\n(.*?)```|`([^`\n]+)`", re.S)
"""Code in a page: a block, or words in backquotes."""
CALLED_BY_FRAMEWORKS = {
    "commit": "pyspark's data source", "initialOffset": "pyspark's data source",
    "latestOffset": "pyspark's data source", "getDefaultReadLimit": "pyspark's data source",
    "reportLatestOffset": "pyspark's data source", "streamReader": "pyspark's data source",
    "Java": "py4j", "onQueryIdle": "pyspark's listener",
    "onQueryProgress": "pyspark's listener", "onQueryStarted": "pyspark's listener",
    "onQueryTerminated": "pyspark's listener", "do_GET": "http.server", "do_POST": "http.server",
    "log_message": "http.server", "model_config": "pydantic", "connection_made": "uvicorn's protocol",
    "connection_lost": "uvicorn's protocol", "handle_events": "uvicorn's protocol",
    "on_response_complete": "uvicorn's protocol", "send_400_response": "uvicorn's protocol",
    "sendall": "socket", "readable": "io", "readinto": "io",
    "prepareForTriggerAvailableNow": "pyspark's data source",
}  # fmt: skip
"""Methods and attributes whose caller is not in `src`."""
READ_WHOLE = {
    "lowest_price": "who reads a participant's status", "highest_price": "who reads a participant's status",
    "valid_from_us": "who reads a control table",
}  # fmt: skip
"""Fields that are written with all others of their record, and their readers."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class, method, field or module constant, and the lines of its body."""

    name: str
    file: Path
    line: int
    end: int
    member: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """A name that occurs in a file, as an attribute or a string, or by itself."""

    file: Path
    line: int
    member: bool = False


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a file: five questions are asked of each."""
    return tuple(ast.walk(tree))


def module_name(path: Path, source: Path = SOURCE) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.Module, known: set[str]) -> set[str]:
    """Modules that a file imports or names in a string, whole or as a folder and a name; and the packages above."""
    found, prefixes, words = set[str](), set[str](), set[str]()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(rf"{PACKAGE}(?:\.\w+)+", node.value))
            prefixes |= {node.value} if re.fullmatch(rf"{PACKAGE}(\.\w+)+\.", node.value) else set()
            words.add(node.value.partition(":")[0])
    found |= {prefix + word for prefix in prefixes for word in words}
    return with_packages(found) & known


def with_packages(names: set[str]) -> set[str]:
    """Modules and the packages that they lie in."""
    return names | {".".join(name.split(".")[:count]) for name in names for count in range(1, name.count(".") + 1)}


def commands(tree: ast.Module) -> set[str]:
    """Modules of the commands: the keys of COMMANDS in cli/main.py."""
    for node in nodes(tree):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "COMMANDS":
            assert isinstance(node.value, ast.Dict)
            return {
                f"{PACKAGE}.cli.{key.value.replace('-', '_')}"
                for key in node.value.keys
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
    return set()


def reached(trees: dict[str, ast.Module], roots: set[str]) -> set[str]:
    """Modules that imports lead to from the roots."""
    known, waiting, found = set(trees), list(with_packages(roots) & set(trees)), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports(trees[name], known) - found
    return found


def definitions(tree: ast.Module, file: Path) -> Iterator[Definition]:
    """Everything in a file that could be unused; what a decorator may register is left out."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield Definition(target.id, file, statement.lineno, statement.end_lineno or statement.lineno)
    members = {
        inner: cls
        for cls in nodes(tree)
        if isinstance(cls, ast.ClassDef)
        for inner in cls.body
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign)
    }
    for inner, cls in members.items():
        fields = "dataclass" in map(_decorator, cls.decorator_list)
        if fields and isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            yield Definition(inner.target.id, file, inner.lineno, inner.end_lineno or inner.lineno, True)
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = {_decorator(one) for one in node.decorator_list}
            if names <= PLAIN_DECORATORS:
                yield Definition(node.name, file, node.lineno, node.end_lineno or node.lineno, node in members)


def _decorator(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _decorator(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def strings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names in strings that are exactly a name, or `module:name`, and their lines."""
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in node.value.split(":")[-1].split("."):
                if name.isidentifier():
                    yield name, node.lineno


def uses(tree: ast.Module, file: Path) -> Iterator[tuple[str, Use]]:
    """Names, attributes and strings that occur in a file; an import alone is no use."""
    for name, line in strings(tree):
        yield name, Use(file, line, True)
    for node in nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id, Use(file, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, Use(file, node.lineno, True)
        elif isinstance(node, ast.MatchClass):
            yield from ((name, Use(file, node.lineno, True)) for name in node.kwd_attrs)
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, Use(file, node.value.lineno)
        elif isinstance(node, ast.ImportFrom):
            # A name taken under another name is used under that one.
            for alias in node.names:
                if alias.asname and alias.asname != alias.name:
                    yield alias.name, Use(file, node.lineno)


def taken(trees: Iterable[ast.Module]) -> set[tuple[str, str]]:
    """(module, name) of what files take from modules: by an import, or as an attribute of a module."""
    found = set[tuple[str, str]]()
    for tree in trees:
        whole = dict[str, str]()
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {(node.module, alias.name) for alias in node.names}
                whole |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        found |= {
            (whole[node.value.id], node.attr)
            for node in nodes(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in whole
        }
    return found


def hidden(trees: dict[Path, ast.Module], users: dict[Path, ast.Module], root: Path) -> list[Definition]:
    """Functions and classes that nothing takes from their module, though another one of their name is used.

    Left out are names in strings, and modules that are loaded by their names.
    """
    named = {name for tree in trees.values() for name, _ in strings(tree)}
    by_name: dict[str, list[tuple[Path, ast.Module, ast.FunctionDef | ast.ClassDef]]] = defaultdict(list)
    for file, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in named:
                by_name[node.name].append((file, tree, node))
    known, modules = taken([*trees.values(), *users.values()]), root / "src"
    loaded = {
        module
        for tree in trees.values()
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for module in re.findall(rf"{PACKAGE}(?:\.\w+)+", node.value)
    }
    return [
        Definition(name, file, node.lineno, node.end_lineno or node.lineno)
        for name, places in by_name.items()
        if len(places) > 1
        for file, tree, node in places
        if module_name(file, modules) not in loaded
        and (module_name(file, modules), name) not in known
        and {_decorator(one) for one in node.decorator_list} <= PLAIN_DECORATORS
        and not any(
            one.id == name and not node.lineno <= one.lineno <= (node.end_lineno or node.lineno)
            for one in nodes(tree)
            if isinstance(one, ast.Name)
        )
    ]


def documented(root: Path) -> set[str]:
    """Names in the code of the documentation, and in the scripts of the live page."""
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    code = " ".join("".join(match) for page in pages for match in CODE.findall(page.read_text(encoding="utf-8")))
    code += " ".join(script.read_text(encoding="utf-8") for script in root.glob("src/**/*.js"))
    return set(re.findall(r"[A-Za-z_]\w*", code))


def offered_whole(tree: ast.Module) -> set[str]:
    """Modules that a front gives out as they are: keys with nothing behind them in the table handed to `lazy`."""
    tables = [node for node in nodes(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy"]
    return {
        str(key.value)
        for table in tables
        for given in table.args
        if isinstance(given, ast.Dict)
        for key, value in zip(given.keys, given.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple) and not value.elts
    }


def unused(trees: dict[Path, ast.Module], root: Path) -> list[Definition]:
    """Definitions whose name occurs nowhere but in their own bodies."""
    found: dict[str, list[Use]] = defaultdict(list)
    users = {path: ast.parse(path.read_text(encoding="utf-8")) for path in root.glob("examples/**/*.py")}
    for file, tree in {**trees, **users}.items():
        for name, use in uses(tree, file):
            found[name].append(use)
    known = documented(root) | CALLED_BY_FRAMEWORKS.keys() | READ_WHOLE.keys() | {"_"}
    fronts = {name for tree in trees.values() for name in offered_whole(tree)}
    public = {file for file in trees if module_name(file, root / "src") in fronts}
    return hidden(trees, users, root) + [
        one
        for file, tree in trees.items()
        for one in definitions(tree, file)
        if not (one.name.startswith("__") and one.name.endswith("__"))
        and one.name not in known
        and not (one.file in public and not one.name.startswith("_"))
        and not any(
            (use.member or not one.member) and (use.file != one.file or not one.line <= use.line <= one.end)
            for use in found[one.name]
        )
    ]


def check(source: Path = SOURCE) -> list[str]:
    """A line for each module and each definition that is dead."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}
    by_name = {module_name(path, source): tree for path, tree in trees.items()}
    main = by_name.get(f"{PACKAGE}.cli.main")
    roots = set(ROOTS) | (commands(main) if main is not None else set())
    alive = reached(by_name, roots)
    lines = [
        f"{path.relative_to(source.parent)}: no command imports this module"
        for path in trees
        if module_name(path, source) not in alive
    ]
    return lines + [
        f"{one.file.relative_to(source.parent)}:{one.line}: nothing in src uses {one.name}"
        for one in unused(trees, source.parent)
    ]


def main() -> None:
    """Print what is dead; exit with 1 if anything is."""
    lines = check()
    for line in lines:
        print(line)
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
