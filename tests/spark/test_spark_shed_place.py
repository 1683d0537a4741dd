"""Where a shed's state lies, and what settings may say of a shed; no Spark runs here."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from floodway.control.registry import make_controller
from floodway.errors import InputError
from floodway.job.options.accuracy import Accuracy
from floodway.job.places import state_root
from floodway.job.store.store import LocalStore, StoreError, probe
from floodway.spark.session.stores import place_files, state_place
from floodway.spark.shed.options import FROM_TEXT, ShedOptions, refuse_unknown
from floodway.spark.shed.shed import shed

CLUSTER = {"spark.master": "spark://far:7077"}


def place(settings: dict[str, str], state_dir: str | None = None, default_fs: str = "file:///") -> str:
    local = settings.get("spark.master", "local[*]").startswith("local")
    return state_place(state_dir, settings.get, local=local, default_fs=default_fs)


def test_what_is_nearest_to_the_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = {"spark.sql.streaming.checkpointLocation": "/checkpoints/"}
    assert place({}) == str(state_root())
    assert place(checkpoints) == "/checkpoints/_floodway"
    monkeypatch.setenv("FLOODWAY_STATE", "s3a://bucket/environment")
    assert place(checkpoints) == "s3a://bucket/environment"
    settings = {**checkpoints, "spark.floodway.state": "hdfs:///setting"}
    assert place(settings) == "hdfs:///setting"
    assert place(settings, "/code") == "/code"


def test_a_place_that_only_the_driver_sees_is_refused_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOODWAY_STATE", raising=False)
    for settings, state_dir in (
        (CLUSTER, None),
        (CLUSTER, "/data/state"),
        (CLUSTER, "file:///data/state"),
        ({**CLUSTER, "spark.sql.streaming.checkpointLocation": "file:/checkpoints"}, None),
        ({"spark.master": "yarn"}, None),
        ({"spark.master": "k8s://https://far:6443"}, None),
    ):
        with pytest.raises(InputError, match=r"whose executors do not see .*Set spark\.floodway\.state"):
            place(settings, state_dir)
    assert place({**CLUSTER, "spark.floodway.state.shared": "true"}, "/mnt/all") == "/mnt/all"


def test_a_path_without_a_scheme_is_sparks() -> None:
    assert place(CLUSTER, "/floodway", "hdfs://name:8020") == "hdfs://name:8020/floodway"
    beside = {**CLUSTER, "spark.sql.streaming.checkpointLocation": "/checkpoints"}
    assert place(beside, None, "hdfs://name:8020") == "hdfs://name:8020/checkpoints/_floodway"
    assert place(CLUSTER, "s3a://bucket/state", "hdfs://name:8020") == "s3a://bucket/state"
    with pytest.raises(InputError, match="do not see file:/floodway"):
        place(CLUSTER, "file:/floodway", "hdfs://name:8020")


def test_a_wrong_address_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has the scheme 'ftp', which is not known here\. Use a folder, or one of"):
        place_files(None, "clicks", "ftp://far/state")
    with pytest.raises(InputError, match=r"names no bucket or container\. Write s3a://NAME/path"):
        place_files(None, "clicks", "s3a:/state")
    with pytest.raises(InputError, match="not usable as a folder"):
        place_files(None, "../clicks", str(tmp_path))


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """A file in the folder's place: unlike missing rights, nobody is exempt from it, not even root."""
    (tmp_path / "state").write_text("")
    files = place_files(None, "clicks", str(tmp_path / "state"))
    with pytest.raises(StoreError, match=r"the state location file://.*/state/clicks cannot be written: .*irectory"):
        probe(files.store)
    probe(LocalStore(tmp_path / "other"))
    assert list((tmp_path / "other").iterdir()) == []


def test_settings_complete_what_the_code_leaves_out() -> None:
    settings = {
        "spark.floodway.target_latency": "4s",
        "spark.floodway.clicks.mode": "enforce",
        "spark.floodway.mode": "off",
        "spark.floodway.key": "tenant, session",
        "spark.floodway.headroom": "0.9",
        "spark.floodway.seed": "7",
        "spark.floodway.ask_executors": "True",
        "spark.floodway.orders.accuracy": "sum(price) by page within 5%",
        "spark.floodway.orders.options": "gain=0.5",
    }
    found = ShedOptions(headroom=0.8).completed("clicks", settings.get)
    assert (found.target_latency, found.mode, found.key, found.headroom) == (
        "4s",
        "enforce",
        ("tenant", "session"),
        0.8,
    )
    asked = found.settings("clicks")
    assert (asked.target_seconds, asked.mode, asked.salt) == (4.0, "enforce", 7)
    assert asked.controller == make_controller("batch", target_seconds=3.2)
    orders = ShedOptions().completed("orders", settings.get)
    assert orders.mode == "off" and orders.accuracy == Accuracy("sum(price)", by="page", within=0.05)
    assert (orders.options, orders.ask_executors) == ({"gain": 0.5}, True)
    assert set(FROM_TEXT) == {one.name for one in fields(ShedOptions)} - {"window", "state_dir"}


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match=r"spark\.floodway\.seed=many is not a number"):
        ShedOptions().completed("clicks", {"spark.floodway.seed": "many"}.get)
    with pytest.raises(InputError, match=r"spark\.floodway\.ask_executors=yes is not true or false"):
        ShedOptions().completed("clicks", {"spark.floodway.ask_executors": "yes"}.get)
    with pytest.raises(InputError, match=r"within soon is no number\. Write sum\(price\) by page"):
        ShedOptions().completed("clicks", {"spark.floodway.accuracy": "count(*) within soon"}.get)
    with pytest.raises(InputError, match=r"spark\.floodway\.target_latancy is not a setting .*Did you mean"):
        refuse_unknown(["spark.master", "spark.floodway.target_latancy"])
    refuse_unknown(["spark.floodway.state", "spark.floodway.state.shared", "spark.floodway.clicks.mode"])
    with pytest.raises(InputError, match=r"has no target latency\. Give target_latency=, or set spark\.floodway"):
        ShedOptions().settings("clicks")
    with pytest.raises(InputError, match="mode 'on' is not known"):
        ShedOptions(target_latency="2s").completed("clicks", {"spark.floodway.mode": "on"}.get).checked("clicks")
    with pytest.raises(InputError, match=r"side_output=20000 is not in"):
        shed("clicks", target_latency="2s", side_output=20_000)
