"""`floodway demo`: one job, offered twice what the machine can process, without and with Floodway, on real Spark."""

from __future__ import annotations

import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from floodway.cli.arguments import usable_folder
from floodway.cli.view.output import print_json
from floodway.cli.view.page import LISTEN, report_html, report_of, serving

STORY = "floodway.experiments.demo.story"
TABLE = "floodway.experiments.demo.table"
"""`cli` and `experiments` are rooms on one level and do not import each other: the demo is loaded by name."""
KEYS = ("without", "sample", "with")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the report.")] = Path("demo-out"),
    seconds: Annotated[
        str | None,
        typer.Option(help="Length of each of the three runs; default 36 s or eight targets.", metavar="DURATION"),
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what Floodway does: a shop's JSON events, twice what this machine can process, with and without it.

    First the job is measured, so that it is overload on any machine. Then it runs three times: without Floodway, with a
    fixed sample as one would write by hand, and with Floodway. Ends in a table, and in a picture and a report in the
    folder --out.

    Example: floodway demo --out demo-out --target 3s --open
    """
    from floodway.job.options import values
    from floodway.spark.session.session import spark_session

    length = None if seconds is None else values.duration("--seconds")(seconds)
    goal = None if target is None else values.duration("--target")(target)
    given = None if rate is None else values.rate("--rate")(rate)
    usable_folder("--out", out)
    story, table = (import_module(name) for name in (STORY, TABLE))
    say = partial(typer.echo, err=as_json)
    with tempfile.TemporaryDirectory(prefix="floodway-demo-") as folder:
        base = Path(folder)
        watched = base / "watched"
        watched.mkdir()
        say("A web shop's clicks and orders, as JSON: parsed, cleaned, joined with a table, aggregated by window.")
        say("Starting Spark …")
        spark = spark_session("floodway-demo", master="local[1]", conf=story.SETTINGS)
        # A query that fails raises here; what Spark logs beside is that the first run is stopped in mid-batch.
        spark.sparkContext.setLogLevel("OFF")
        try:
            with (
                serving([watched], listen=page, open_browser=open_browser),
                DemoProgress(quiet=as_json) as progress,
            ):
                machine = story.calibrate(spark, base / "calibration", progress)
                goal = goal or machine.target
                length = length or story.load_seconds(goal)
                offered = given or story.OVERLOAD * machine.capacity
                runs = [
                    story.run(
                        spark,
                        base / key,
                        name,
                        offered,
                        seconds=length,
                        target=goal,
                        state=watched,
                        progress=progress,
                    )
                    for key, name in zip(KEYS, story.RUNS, strict=True)
                ]
        finally:
            spark.stop()
        out.mkdir(parents=True, exist_ok=True)
        report = out / "report.html"
        report.write_text(report_html(report_of(watched / story.SHED), title="demo"), encoding="utf-8")
    picture = table.save(out / "demo.svg", runs, goal, offered)
    if as_json:
        figures = {**machine.to_dict(), "rate": offered, "target": goal, "seconds": length}
        keyed = dict(zip(KEYS, (run.to_dict() for run in runs), strict=True))
        print_json({**figures, **keyed, "picture": str(picture), "report": str(report)})
        return
    say(
        f"One core processes about {machine.capacity:,.0f} events/s, and a batch takes {machine.batch_seconds:.1f} s at"
    )
    say(f"least. {offered:,.0f} per second were offered for {length:g} s.")
    table.show(runs, goal)
    say(f"picture: {picture}\nreport:  {report}")
    say(f"To see them: open {picture.resolve()}")


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

    def __call__(self, title: str, share: float, remark: str) -> None:
        if self._bar is None:
            return
        if title not in self._tasks:
            self._tasks[title] = self._bar.add_task(title, total=1.0, remark="")
        self._bar.update(self._tasks[title], completed=share, remark=remark)
