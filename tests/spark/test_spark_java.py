"""Which Java is taken, and what the wrapper around a packaged one passes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from floodway.spark.session import java as finder
from floodway.spark.session.java import VECTOR_MODULE, JavaNotFoundError, find_java, is_wrapper, probe, wrap


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python environment without the packaged runtime, whatever this one has."""
    monkeypatch.setattr(finder, "packaged_java", lambda: None)


def fake_java(home: Path, version: str) -> Path:
    """A machine's `java` of some version: answers the one question that is asked."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    answer = f"    java.home = {home}\n    java.specification.version = {version}\n"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}END\n")
    java.chmod(0o755)
    return java


def test_the_real_one_of_this_machine_runs_and_is_new_enough() -> None:
    runtime = probe(find_java() / "bin" / "java")
    assert runtime is not None
    assert runtime.version >= 17


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    fake_java(first, "21")
    fake_java(second, "17")
    assert find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")}) == first
    assert find_java({"PATH": str(second / "bin")}) == second


def test_an_old_one_in_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8")
    fake_java(tmp_path / "new", "17")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert find_java(environ) == tmp_path / "new"


@pytest.mark.usefixtures("no_package")
def test_without_java_one_line_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "old" / "bin")})
    assert "Java 11" in str(caught.value)
    assert "Install OpenJDK" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_package")
def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "broken", "17")
    java.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(JavaNotFoundError):
        find_java({"PATH": str(java.parent)})


def test_a_packaged_runtime_is_used_behind_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = fake_java(tmp_path / "package", "21")
    monkeypatch.setattr(finder, "packaged_java", lambda: packaged)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    home = find_java({"PATH": ""})
    assert home == tmp_path / "env" / "java"
    assert is_wrapper(home / "bin" / "java")
    # Named as JAVA_HOME (as a child process of Spark sees it) the wrapper stays: not the runtime behind it.
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_the_wrapper_leaves_out_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    echo = tmp_path / "a folder" / "java"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nfor argument do printf "[%s]" "$argument"; done\n')
    echo.chmod(0o755)
    home = wrap(echo, tmp_path / "home")
    arguments = ["-Xmx1g", VECTOR_MODULE, "two words", "", "$HOME", "--add-modules=jdk.net"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "[-Xmx1g][two words][][$HOME][--add-modules=jdk.net]"


def test_making_the_wrapper_again_changes_nothing(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "package", "21")
    wrapper = wrap(java, tmp_path / "home") / "bin" / "java"
    before = wrapper.stat()
    wrap(java, tmp_path / "home")
    assert (wrapper.stat().st_ino, wrapper.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [file.name for file in wrapper.parent.iterdir()] == ["java"]


def test_two_threads_make_the_wrapper_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread comes between the first one's draft and its replacement."""
    java, replace = fake_java(tmp_path / "runtime", "21"), Path.replace

    def held_up(draft: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        wrap(java, tmp_path / "home")
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", held_up)
    wrap(java, tmp_path / "home")
    assert [path.name for path in (tmp_path / "home" / "bin").iterdir()] == ["java"]
    assert is_wrapper(tmp_path / "home" / "bin" / "java")
