"""`floodway dashboard`: serves what it is given, and refuses what would be unsafe or shows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.dashboard import dashboard
from floodway.cli.view.page import parse_address, serving
from floodway.errors import InputError

app = typer.Typer()
app.command()(dashboard)
runner = CliRunner()


def test_it_serves_says_where_and_ends(tmp_path: Path) -> None:
    result = runner.invoke(app, [str(tmp_path), "--listen", "127.0.0.1:0", "--seconds", "0.1"])
    assert result.exit_code == 0, result.output
    assert "page: http://127.0.0.1:" in result.output


def test_a_time_below_zero_is_refused(tmp_path: Path) -> None:
    result = runner.invoke(app, [str(tmp_path), "--listen", ":0", "--seconds", "-1"])
    assert isinstance(result.exception, InputError)
    assert "--seconds -1 is not a duration of at least 0" in str(result.exception)


def test_a_read_token_needs_a_key_beyond_this_machine_and_certificates_come_in_threes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-read")
    token.chmod(0o600)
    arguments = [str(tmp_path), "--listen", "127.0.0.1:0", "--seconds", "0", "--read-token-file", str(token)]
    assert runner.invoke(app, arguments).exit_code == 0
    refused = runner.invoke(app, [*arguments, "--cert", str(token)])
    assert "mutual TLS needs three files" in str(refused.exception)


def test_without_anything_to_show_it_says_what_to_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOODWAY_STATE", str(tmp_path / "nowhere"))
    result = runner.invoke(app, [])
    assert isinstance(result.exception, InputError)
    assert "floodway dashboard clicks" in str(result.exception)


def test_all_sheds_of_the_user_are_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOODWAY_STATE", str(tmp_path))
    assert runner.invoke(app, ["--listen", ":0", "--seconds", "0"]).exit_code == 0


def test_beyond_this_machine_a_key_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FLOODWAY_KEY", "FLOODWAY_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    refused = runner.invoke(app, [str(tmp_path), "--listen", "0.0.0.0:0", "--seconds", "0"])
    assert isinstance(refused.exception, InputError)
    assert "key file" in str(refused.exception)
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123")
    key.chmod(0o600)
    result = runner.invoke(app, [str(tmp_path), "--listen", "0.0.0.0:0", "--seconds", "0", "--key-file", str(key)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("text", ["", "here", "127.0.0.1:http", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not an address"):
        parse_address(text)


def test_a_browser_is_opened_only_when_asked_and_its_lack_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    opened: list[str] = []

    def no_browser(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", no_browser)
    with serving([tmp_path]):
        assert opened == []
    with serving([tmp_path], open_browser=True) as url:
        assert opened == [url]
    assert "open the address above yourself" in capsys.readouterr().err
