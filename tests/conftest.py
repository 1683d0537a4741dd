"""What all tests share: one real Spark session, slow tests on request, a header to repeat a run by."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import THOROUGH

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

# `fixed` tries the same examples in every run: a red test is red for everybody. `explore` tries new ones,
# from a seed that is printed: pytest --hypothesis-profile=explore [--hypothesis-seed=N]
# Neither judges how long examples take: a process may be held up at any moment.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("fixed", PATIENT, derandomize=True)
settings.register_profile("explore", PATIENT, derandomize=False)
settings.load_profile("fixed")

SEED = re.compile(r"\bseed \d+")
"""In what a test prints, a line that has to be seen: by it others repeat what was tried."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
collect_ignore = ["matrix"]  # for a Spark of any version, in an environment of its own: `make matrix`


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests only if asked for: they are counted as deselected, not reported as skipped."""
    if config.getoption("--run-slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of an `explore` run here, so that it can be printed; and say how much is to be tried."""
    exploring = config.getoption("--hypothesis-profile") == "explore"
    if exploring or config.getoption("--run-slow"):
        os.environ[THOROUGH] = "yes"
    if exploring and config.getoption("--hypothesis-seed") is None:
        import secrets

        config.option.hypothesis_seed = str(secrets.randbits(32))


def pytest_report_header(config: pytest.Config) -> str:
    profile = config.getoption("--hypothesis-profile") or "fixed"
    seed = config.getoption("--hypothesis-seed") or "none (the same examples in every run)"
    slow = "run" if config.getoption("--run-slow") else "left out (--run-slow)"
    return f"hypothesis: profile {profile}, seed {seed}; slow tests: {slow}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end which seeds were tried, and in red what this machine could not do: every skip, by its reason."""
    for report in terminalreporter.getreports("passed"):
        for line in filter(SEED.search, report.capstdout.splitlines()):
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")
    reasons = Counter(
        report.longrepr[2] for report in terminalreporter.getreports("skipped") if isinstance(report.longrepr, tuple)
    )
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"{tests} NOT RUN: {reason}", red=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The places of jobs are noted below the user's home: not below that of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Java and disk as tests need them, unless latencies are judged.

    Every Java that a test starts, itself or by a command, lives for some minutes and has others beside it: the
    optimising compiler then takes more than it gives, and so do the threads of the usual garbage collector. To verify
    Spark's classes takes a quarter of its start. And no test cuts the power: what a process has written is there for
    all, also after a kill. That `fsync` is called where it must be, tests find out with one of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not any(item.get_closest_marker("timing") for item in request.session.items):
            patch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
            patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture
def patient_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that waits for agents until they answer: a test that needs their answers depends on no speed."""
    from tests.patience import PATIENCE_SECONDS

    for name in ("WAIT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(f"floodway.dashboard.agents.{name}", PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One real Chromium for all tests of the page and of the documentation."""
    from playwright.sync_api import expect, sync_playwright

    from tests.browser import FLAGS, PATIENCE_MS, browser_or_skip

    path = browser_or_skip()
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def kafka_jars() -> str:
    """The jars of Spark's Kafka connector as a comma list for `spark.jars`; skips if not to be had."""
    from tests.kafka_jars import connector_jars

    return ",".join(map(str, connector_jars()))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one real Spark session of the run, started by the first test that asks for it.

    It has the Kafka connector if a selected test is marked `kafka`, or if an earlier run left it in the
    cache: jars cannot be added to the session's own class loader later.
    """
    from floodway.spark.session.session import spark_session
    from tests.kafka_jars import connector_if_cached, try_connector
    from tests.patience import PATIENCE_SECONDS

    wanted = any(item.get_closest_marker("kafka") for item in request.session.items)
    jars = try_connector() if wanted else connector_if_cached()
    conf = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # One task a shuffle: half the state stores to open and commit in every stateful batch.
        "spark.sql.shuffle.partitions": "1",
        # A machine that is held up is no query that does not stop.
        "spark.sql.streaming.stopTimeout": f"{PATIENCE_SECONDS}s",
    }
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    session = spark_session("floodway-tests", conf=conf)
    yield session
    session.stop()
