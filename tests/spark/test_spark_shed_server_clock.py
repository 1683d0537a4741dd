"""Spark Connect: the clock of the batches is the server's, and the client's is another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from floodway.job.decision import write_mode
from floodway.job.places import ShedFiles
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.server_clock import AGAIN_US, GOOD_US, QUESTIONS, ServerClock
from floodway.units import PPM
from tests.spark.test_spark_shed_loop import SECOND, Job

HOUR = 3600.0


@dataclass
class Remote(Job):
    """A job whose server's clock differs from the client's by some seconds; its checkpoint cannot be read."""

    ahead: float = 0.0
    expires: float | None = 60.0

    def start(self) -> ShedLoop:
        loop = super().start()
        server = ServerClock(lambda: self.server_us, lambda: self.now_us)
        settings = replace(loop.settings, expires_seconds=self.expires)
        loop = ShedLoop(settings, ShedFiles(self.folder), clock_us=server, server=server)
        loop.on_start("q", None)
        return loop

    @property
    def server_us(self) -> int:
        return self.now_us + round(self.ahead * SECOND)

    def batch_keeps(self, batches: int) -> list[float]:
        """What so many batches keep, each reported after it has ended; the timestamps are the server's."""
        found = []
        for _ in range(batches):
            self.loop.look_at_clock()  # as the heartbeat does
            self.loop.renew()
            client_us, self.now_us = self.now_us, self.server_us
            self.previous_us += self.now_us - client_us
            (report,) = self.reports(1)
            self.now_us -= round(self.ahead * SECOND)
            self.previous_us -= round(self.ahead * SECOND)
            found.append(report.kept / report.offered)
            self.loop.on_batch(report)
        return found


@pytest.mark.parametrize(
    ("ahead", "expires"), [*((ahead, 60.0) for ahead in (0.5, 5.0, -5.0, HOUR, -24 * HOUR)), (5.0, None)]
)
def test_decisions_and_the_kill_switch_go_by_the_servers_clock(
    tmp_path: Path, ahead: float, expires: float | None
) -> None:
    alike = Remote(tmp_path / "alike", expires=expires)
    job = Remote(tmp_path / "job", expires=expires, ahead=ahead)
    assert job.batch_keeps(20) == pytest.approx(alike.batch_keeps(20), abs=0.02)
    write_mode(job.loop.files.store, "off")
    assert job.batch_keeps(5)[2:] == [1.0] * 3
    assert not job.loop.warnings and job.loop.control.late_writes == 0


@pytest.mark.parametrize("step", [5.0, -5.0, HOUR, -HOUR])
def test_a_servers_clock_that_is_set_is_followed_within_seconds(tmp_path: Path, step: float) -> None:
    job = Remote(tmp_path / "job", rate=8_000.0)
    assert min(job.batch_keeps(20)) < 0.9
    job.ahead = step
    job.batch_keeps(4)
    write_mode(job.loop.files.store, "off")
    assert job.batch_keeps(6)[3:] == [1.0] * 3
    write_mode(job.loop.files.store, "enforce")
    assert max(job.batch_keeps(20)[10:]) < 0.9


def test_an_answer_is_from_between_the_question_and_its_arrival() -> None:
    steady, server = [0], [7 * SECOND]
    takes = iter([400_000, 30_000, 90_000])

    def ask() -> int:
        half = next(takes) // 2
        steady[0] += half
        server[0] += half
        told = server[0]
        steady[0] += half
        server[0] += half
        return told

    def pass_by(seconds: int) -> None:
        steady[0] += seconds * SECOND
        server[0] += seconds * SECOND

    def is_right() -> bool:
        return clock() - clock.doubt_us <= server[0] <= clock()

    clock = ServerClock(ask, lambda: steady[0])
    assert clock.doubt_us == 30_000 <= GOOD_US and QUESTIONS > 2 and is_right()
    clock.look()
    clock.look(server[0])  # neither is it time, nor does a batch speak against it
    assert next(takes) == 90_000
    takes = iter([600_000, 20_000])
    pass_by(AGAIN_US // SECOND)
    clock.look()  # a server that is busy tells nothing new
    assert 30_000 < clock.doubt_us < 50_000 and is_right()
    pass_by(AGAIN_US // SECOND)
    clock.look()
    assert clock.doubt_us == 20_000 and is_right()
    for step in (HOUR, -HOUR, 0.5, -0.5):  # told by a batch at once, if it is far
        server[0] += round(step * SECOND)
        takes = iter([10_000, 40_000])
        pass_by(2 if abs(step) > 1 else AGAIN_US // SECOND)
        clock.look(server[0])
        assert clock.doubt_us == 40_000 and is_right()


def test_what_a_batch_needs_of_doubt_is_kept_for_it(tmp_path: Path) -> None:
    """A batch that began a moment before, by a clock that is not known to the moment, has what it had."""
    job = Remote(tmp_path / "job")
    assert job.loop.server is not None
    job.batch_keeps(8)
    job.loop.server.doubt_us = SECOND // 2
    job.loop.on_idle("q", job.loop.clock_us())
    began_us = job.loop.clock_us() - SECOND // 4
    before = job.loop.control.table.at(began_us)
    write_mode(job.loop.files.store, "off")
    job.loop.follow_mode()
    assert job.loop.control.latest.mode == "off" and job.loop.control.table.at(began_us) == before
    assert before.keep_at(began_us) < PPM
