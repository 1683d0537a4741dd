"""The buffer's options of `floodway run`: refused with one sentence before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.run import run
from floodway.cli.view.output import deadline_lines
from floodway.errors import InputError
from floodway.job.options.flags import Given, parsed
from floodway.job.options.options import JobOptions

NETWORK = """
version: 1
name: clicks
streams: {{clicks: {{max_rate: 100{deadline}}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{parse: {{node: A, from: clicks, kind: delay, cost: 0.001}}}}
outputs: {{q: {{from: parse}}}}
"""


def refused(tmp_path: Path, *options: str, deadline: str = ", deadline: 2s") -> str:
    network = tmp_path / "clicks.yaml"
    network.write_text(NETWORK.format(deadline=deadline))
    app = typer.Typer()
    app.command()(run)
    result = CliRunner().invoke(app, [str(network), "--seconds", "1", *options])
    assert result.exit_code != 0
    return str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--buffer", "cwbb"), "--buffer 'cwbb' is not known"),
        (("--buffer", "cwb", "--scheduler", "lifo"), "--scheduler 'lifo' is not known"),
        (("--adaptor", "pd"), "--adaptor 'pd' is not known. Did you mean pid?"),
        (("--buffer", "cob", "--no-cleaner"), "cob has no cleaner"),
        (("--buffer", "cwb", "--queue-limit", "-5"), "--queue-limit -5 is not a whole number"),
        (("--buffer", "cwb", "--deadlines", "clicks=0"), "a deadline of 0 s"),
        (("--buffer", "cwb", "--deadlines", "clicks=-2"), "--deadlines"),
        (("--buffer", "cwb", "--deadlines", "clisk=2"), "did you mean"),
        (("--buffer", "cwb", "--miss-ratio", "0"), "--miss-ratio 0 is not a share"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refused(tmp_path, *options)


def test_a_buffer_needs_a_deadline(tmp_path: Path) -> None:
    assert "no stream of clicks has a deadline" in refused(tmp_path, "--buffer", "cwb", deadline="")


@pytest.mark.parametrize("deadline", ["-1s", "0", "soon"])
def test_deadlines_of_the_file_are_checked_with_their_key(tmp_path: Path, deadline: str) -> None:
    assert "deadline" in refused(tmp_path, "--buffer", "cwb", deadline=f", deadline: {deadline}")


def test_options_become_what_the_run_is_told() -> None:
    assert JobOptions().buffering is None
    given: dict[str, Given] = {"scheduler": "fifo", "cleaner": False, "deadlines": "s1=2,s2/0=500ms"}
    alone = JobOptions(**parsed("run", given)).buffering
    assert alone is not None
    assert (alone.manager, alone.scheduler, alone.adaptor, alone.cleaner) == ("cwb", "fifo", "pid", False)
    assert alone.deadlines == {"s1": 2.0, "s2/0": 0.5}
    baseline = JobOptions(buffer="aurora", miss_ratio=0.05).buffering
    assert baseline is not None
    assert (baseline.manager, baseline.permitted_miss_ratio) == ("aurora", 0.05)
    with pytest.raises(InputError, match="cob has no limit"):
        _ = JobOptions(buffer="cob", queue_limit=5).buffering


def test_deadlines_are_told_in_a_line_each() -> None:
    seen = {"clicks": {"in_time": 1200, "late": 3, "miss_ratio": 0.0025, "purged": 40}}
    assert deadline_lines(seen) == [
        "deadline of clicks: 1,200 in time, 3 late (0.2%), 40 purged before they could be late"
    ]
