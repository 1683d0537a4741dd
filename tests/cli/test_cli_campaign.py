"""What `reproduce`, `bench` and `chaos` share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from floodway.cli.view.campaign import own_home
from floodway.job.places import home_root, state_root


@pytest.mark.parametrize("chosen", ["FLOODWAY_STATE", "XDG_STATE_HOME"])
def test_jobs_of_a_campaign_are_not_among_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.delenv("FLOODWAY_STATE", raising=False)
    monkeypatch.setenv(chosen, str(tmp_path))
    before, environ = (home_root(), state_root()), dict(os.environ)
    with own_home():
        within = home_root()
        assert not within.is_relative_to(tmp_path) and state_root() == str(within)
        within.mkdir(parents=True)
    assert not within.exists()
    assert (home_root(), state_root()) == before and dict(os.environ) == environ
