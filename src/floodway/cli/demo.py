"""`floodway demo`: one job, offered twice what the machine can process, without and with Floodway, on real Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer

from floodway.cli.arguments import AsJson, usable_folder
from floodway.cli.view.output import print_json
from floodway.cli.view.page import LISTEN, report_html, report_of, serving

PARTS = (
    "floodway.experiments.demo.jobs",
    "floodway.experiments.demo.calibration",
    "floodway.experiments.demo.story",
    "floodway.experiments.demo.comparison",
    "floodway.experiments.demo.result",
)
"""`cli` and `experiments` are rooms on one level and do not import each other: the demo is loaded by name."""
KEYS = ("without", "with", "sample")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the report.")] = Path("demo-out"),
    seconds: Annotated[
        str | None,
        typer.Option(help="Length of each of the three runs; default 30 s or six targets.", metavar="DURATION"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Latency target; default 3 s, more where batches take long.", metavar="DURATION"),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Events per second; default twice what is measured.", metavar="RATE")
    ] = None,
    page: Annotated[str, typer.Option(help="HOST:PORT of the live page; port 0 takes a free one.")] = LISTEN,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the live page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what Floodway does: a shop's JSON events, twice what this machine can process, with and without it.

    First the job is measured, so that it is overload on any machine. Then it runs three times: without Floodway, with
    Floodway, and with a fixed sample as one would write by hand. A picture in the folder --out and on the live page
    shows each run as soon as it is over. Ends in a table, and in a report in the same folder.

    Example: floodway demo --out demo-out --target 3s --open
    """
    from floodway.job.options import values
    from floodway.spark.session.session import spark_session

    length = None if seconds is None else values.duration("--seconds", seconds)
    wanted = None if target is None else values.duration("--target", target)
    given = None if rate is None else values.rate("--rate", rate)
    usable_folder("--out", out)
    say = partial(typer.echo, err=as_json)
    say("A web shop's clicks and orders, as JSON: parsed, cleaned, joined with a table, aggregated by window.")
    say("Starting Spark …")
    jobs, calibration, story, table, result = map(import_module, PARTS)
    picture, report = out / "demo.svg", out / "report.html"
    picture.unlink(missing_ok=True)  # that of an earlier demo
    with tempfile.TemporaryDirectory(prefix="floodway-demo-") as folder:
        base = Path(folder)
        watched = base / "watched"
        watched.mkdir()
        spark = spark_session("floodway-demo", master="local[1]", conf=jobs.SETTINGS)
        # A query that fails raises here; what Spark logs beside is that the first run is stopped in mid-batch.
        spark.sparkContext.setLogLevel("OFF")
        runs: list[Any] = []
        try:
            with (
                serving([watched], listen=page, open_browser=open_browser, comparison=picture),
                DemoProgress(quiet=as_json) as progress,
            ):
                with removed(base / "calibration"):
                    machine = calibration.calibrate(spark, base / "calibration", progress)
                goal, length = wanted or machine.target, length or calibration.load_seconds(wanted or machine.target)
                offered = given or calibration.OVERLOAD * machine.capacity

                def run(folder: str, name: str) -> Any:
                    where = {"seconds": length, "target": goal, "state": watched, "progress": progress}
                    with removed(base / folder):
                        return story.run(spark, base / folder, name, offered, **where)

                for key, name in zip(KEYS, jobs.RUNS, strict=True):
                    if name == jobs.PROTECTED:
                        with removed(base / "check"):
                            machine = calibration.checked(spark, base / "check", machine, offered, progress)
                        goal = wanted or machine.target
                        runs = [replace(one, target=goal) for one in runs]
                    done = run(key, name)
                    if name == jobs.WITHOUT and given is None and (found := calibration.faster(machine, done)):
                        machine, offered = found, calibration.OVERLOAD * found.capacity
                        progress.say(f"this machine is faster than measured: once more, at {offered:,.0f} events/s")
                        done = run(f"{key}-again", name)
                    runs.append(done)
                    table.save(picture, runs, goal, offered)
                    progress.say(f"picture of {len(runs)} of {len(KEYS)} runs: {picture}")
        finally:
            spark.stop()
        report.write_text(report_html(report_of(watched / jobs.SHED), title="demo"), encoding="utf-8")
    if as_json:
        figures = {**machine.to_dict(), "rate": offered, "target": goal, "seconds": length}
        best = result.optimum(runs)
        keyed = dict(zip(KEYS, (run.to_dict(best) for run in runs), strict=True))
        print_json({**figures, **keyed, "picture": str(picture), "report": str(report)})
        return
    say(f"One core processes about {machine.capacity:,.0f} events/s, and an empty batch takes")
    say(f"{machine.batch_seconds:.1f} s. {offered:,.0f} per second were offered for {length:g} s.")
    table.show(runs, goal)
    say(f"picture: {picture}\nreport:  {report}")
    say(f"To see them: open {picture.resolve()}")


@contextmanager
def removed(folder: Path) -> Iterator[None]:
    """Whatever comes of the block, the events in this folder are gone: hundreds of megabytes per run."""
    try:
        yield
    finally:
        rmtree(folder, ignore_errors=True)


class DemoProgress:
    """Call it with a title, the share done in [0, 1] and a remark; silent where output is for machines."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._tasks: dict[str, Any] = {}
        self._bar: Any = None

    def __enter__(self) -> DemoProgress:
        if not self._quiet:
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}", style=""), BarColumn(), TextColumn("{task.fields[remark]}"))
            self._bar = Progress(*columns)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        if self._bar is None:
            typer.echo(text, err=True)
        else:
            self._bar.console.print(text, highlight=False, soft_wrap=True)

    def __call__(self, title: str, share: float, remark: str) -> None:
        if self._bar is None:
            return
        if title not in self._tasks:
            self._tasks[title] = self._bar.add_task(title, total=1.0, remark="")
        self._bar.update(self._tasks[title], completed=share, remark=remark)
