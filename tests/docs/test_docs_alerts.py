"""Every alert has a row on the page for operators, and every row an alert."""

from __future__ import annotations

import re

import yaml

from tests.docs.pages import ROOT

RULES = yaml.safe_load((ROOT / "ops" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def row_of(alert: str) -> list[str]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{alert}` |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_alert_has_a_row_and_every_row_an_alert() -> None:
    alerts = [rule["alert"] for group in RULES for rule in group["rules"]]
    assert re.findall(r"^\| `(Floodway\w+)` \|", PAGE, re.MULTILINE) == alerts


def test_a_row_says_when_it_fires_and_its_rule_what_to_do() -> None:
    for rule in (rule for group in RULES for rule in group["rules"]):
        _, when = row_of(rule["alert"])
        minutes = re.findall(r"(\d+) min", when)
        # A minute of silence is told in words; every other time is that of the rule.
        assert minutes == ([] if rule.get("for", "1m") == "1m" else [rule["for"].rstrip("m")]), rule["alert"]
        assert len(rule["annotations"]["action"]) > 10
