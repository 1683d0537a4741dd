"""Code blocks of the documentation do what they say: executed, parsed, or at least checked for what they name."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from floodway.cli.main import ALIASES, COMMANDS
from floodway.network.file import parse_network
from tests.docs.pages import ROOT, Block, blocks, blocks_of, commands, environment, pages, understood, workplace

KNOWN = {"python", "yaml", "bash", "console", "json", "text", ""}
NEEDS = "spark"
SHELL = blocks("bash", "console")
ALONE = [block for block in SHELL if block.language == "bash" and not block.note]


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_blocks_run(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile(block.body, str(block), "exec")
    assert block.note in ("", NEEDS)
    if block.note != NEEDS:
        monkeypatch.chdir(workplace(tmp_path))
        exec(compiled, {"__name__": "docs"})


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_blocks_are_network_files(block: Block) -> None:
    assert parse_network(block.body, source=str(block)).outputs


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_blocks_parse(block: Block) -> None:
    assert json.loads(block.body)


@pytest.mark.parametrize("block", ALONE, ids=str)
def test_commands_run(block: Block, tmp_path: Path) -> None:
    script = "\n".join(line for line in commands(block) if line.startswith("floodway "))
    answer = subprocess.run(
        ["bash", "-eu", "-c", script or "true"],
        cwd=workplace(tmp_path),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_would_be_understood_and_targets_exist(block: Block) -> None:
    for line in commands(block):
        words = shlex.split(line)
        if words[0] == "make":
            assert all(re.search(rf"^{word}:", makefile(), re.MULTILINE) for word in words[1:]), line
            continue
        assert words[0] == "floodway", f"{block}: a shell block holds floodway and make commands only: {line}"
        assert understood(words[1:]) == "", line


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("participant f.yaml --name A --state a --shared s", "catalogue"),
        ("report runs/shop --htm x", "--htm"),
        ("report", "job"),
        ("payments a b", "b"),
        ("reprot x", "no command reprot"),
    ],
)
def test_a_command_that_would_not_start_is_found(line: str, told: str) -> None:
    assert told in understood(line.split())


def test_commands_named_in_prose_exist() -> None:
    named = {
        (page.name, name)
        for page in pages()
        for name in re.findall(r"`floodway ([a-z][a-z-]*)", page.read_text(encoding="utf-8"))
    }
    assert {(page, name) for page, name in named if name not in COMMANDS and name not in ALIASES} == set()


def test_every_block_says_what_it_is() -> None:
    everywhere = [block for page in pages() for block in blocks_of(page)]
    assert [str(block) for block in everywhere if block.language not in KNOWN] == []
    assert ALONE and blocks("python") and blocks("yaml"), "no block was found: look at the fences"


@cache
def makefile() -> str:
    """The project's targets."""
    return (ROOT / "Makefile").read_text(encoding="utf-8")
