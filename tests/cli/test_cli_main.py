"""The front of the command line: groups, former names, and hints from wrong commands to right ones."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from floodway.agent.wire.ports import free_ports
from floodway.cli import main
from floodway.cli.main import ALIASES, COMMANDS, MEANT, wanted
from floodway.errors import InputError
from tests.docs.pages import command_line


def floodway(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "floodway.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_shows_every_command_in_its_group() -> None:
    lines = floodway("--help").stdout.splitlines()
    group, found = "", dict[str, str]()
    for line in lines:
        if line.startswith("╭─ "):
            group = line.strip("╭─╮ ")
        elif line.startswith("│ ") and line[2] not in " -":
            found[line.split()[1]] = group
    assert found == dict(COMMANDS)


def test_a_command_loads_its_own_file_only() -> None:
    code = (
        "import sys; sys.argv = ['floodway', 'validate', '--help']\n"
        "from floodway.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(m.removeprefix('floodway.cli.') for m in sys.modules if m.startswith('floodway.cli.')))\n"
        "print('numpy' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-2:] == ["main validate view view.output", "False"]


@pytest.mark.parametrize("name", MEANT)
def test_what_was_meant_names_a_command_that_would_start(name: str) -> None:
    with pytest.raises(InputError) as caught:
        wanted([name])
    assert caught.value.hint == MEANT[name]
    assert name not in COMMANDS and name not in ALIASES
    words = MEANT[name].split()
    named = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "floodway" and words[i + 1][0] != "-"]
    assert set(named) <= set(COMMANDS)
    known = command_line().commands
    options = {word.strip(",;") for word in words if word.startswith("--")} - {"--version", "--help"}
    offered = {flag for command in named for one in known[command].params for flag in one.opts}
    assert options <= offered


def test_a_mistyped_command_gets_the_nearest_and_exit_code_2(tmp_path: Path) -> None:
    done = floodway("vaildate", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.strip() == "error: there is no command 'vaildate'. Did you mean floodway validate?"
    with pytest.raises(InputError, match="floodway --help lists all commands"):
        wanted(["xyzzy"])
    assert wanted(["plan", "net.yaml"]) == ("plan",)
    assert set(wanted([])) == set(wanted(["--help"])) == {*COMMANDS, *ALIASES}


def test_options_are_shown_in_panels() -> None:
    said = floodway("run", "--help").stdout
    for panel in ("Target and control", "Planning", "Drops and losses", "Buffer", "Spark", "Watching"):
        assert f"─ {panel} ─" in said


def test_a_process_that_has_ended_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(main, "register", lambda names: None)
    monkeypatch.setattr(main, "app", lambda: socket.create_connection(("127.0.0.1", port)))
    monkeypatch.setattr("sys.argv", ["floodway", "demo"])
    with pytest.raises(SystemExit, match="1"):
        main.main()
    said = capsys.readouterr().err
    assert said.startswith("error: a process that this command needs has ended: Connection refused. If it was Spark's")
