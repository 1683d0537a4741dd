"""`make test`: every step runs, is shown and counts."""

from __future__ import annotations

import sys

import pytest

from scripts import run_tests


def test_a_step_that_fails_fails_the_run_and_the_next_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def step(code: str) -> list[str]:
        return [sys.executable, "-c", code]

    chosen = {"first": step("print('one'); raise SystemExit(3)"), "second": step("print('two')"), "third": step("")}
    monkeypatch.setattr(run_tests, "steps", lambda: chosen)
    monkeypatch.setattr(run_tests, "AT_A_TIME", 1)
    assert run_tests.main([]) == 3
    said = capfd.readouterr().out.splitlines()
    assert {"one", "two", "first: FAILED, exit 3", "second: passed", "third: passed"} <= set(said)


def test_the_steps_of_jobs_have_the_files_with_heavy_tests_that_no_other_step_has() -> None:
    files = run_tests.jobs()
    agents, others = run_tests.jobs(run_tests.AGENTS), run_tests.jobs(all_but=run_tests.AGENTS)
    assert sorted(agents + others) == sorted(files)
    commands = list(run_tests.steps().values())
    assert all(sum(name in command for command in commands) == 1 for name in files)
    assert "tests/agent/test_agent_run.py" in agents and "tests/examples/test_examples_notebook.py" in others
    assert not [name for name in files if name.startswith(("tests/spark/", "tests/kafka/", "tests/cluster/"))]
    assert "tests/job/test_job_store.py" not in files
