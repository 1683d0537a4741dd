"""`floodway validate` from the outside: exit codes, JSON, no tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.command import floodway

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"


def test_a_good_file(tmp_path: Path) -> None:
    done = floodway("validate", str(EXAMPLES / "figure1.yaml"), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"ok": True, "errors": [], "name": "figure1"}
    unmeasured = tmp_path / "net.yaml"
    text = (EXAMPLES / "figure1.yaml").read_text(encoding="utf-8")
    unmeasured.write_text(text.replace("cost: 3.0, ", ""), encoding="utf-8")
    done = floodway("validate", str(unmeasured))
    assert done.returncode == 0
    assert "to be measured before planning: b1" in done.stdout


def test_a_wrong_file_lists_every_problem_with_exit_code_2(tmp_path: Path) -> None:
    wrong = tmp_path / "net.yaml"
    text = (EXAMPLES / "figure1.yaml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("cost: 3.0", "cost: -3").replace("from: s1", "frm: s1"), encoding="utf-8")
    done = floodway("validate", str(wrong), "--json")
    assert done.returncode == 2
    assert done.stderr == ""
    body = json.loads(done.stdout)
    assert body["ok"] is False
    assert [(each["key"], each["line"]) for each in body["errors"]] == [
        ("operators.a1.frm", 13),
        ("operators.b1.cost", 15),
    ]
    assert all(each["message"] for each in body["errors"])
    plain = floodway("validate", str(wrong))
    assert plain.returncode == 2
    assert "line 13: operators.a1.frm" in plain.stderr
    assert "Traceback" not in plain.stderr


def test_a_file_that_is_not_there() -> None:
    done = floodway("validate", "nowhere.yaml", "--json")
    assert done.returncode == 2
    assert "no such file" in json.loads(done.stdout)["errors"][0]["message"]
