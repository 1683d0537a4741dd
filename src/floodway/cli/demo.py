"""`floodway demo`: one job, offered twice what the machine can process, without and with Floodway, on real Spark."""

from __future__ import annotations

import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from floodway.cli.checks import above_zero, usable_folder
from floodway.cli.output import print_json
from floodway.cli.page import LISTEN, serving

STORY, PICTURE = "floodway.experiments.demo.story", "floodway.experiments.demo.picture"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-out"),
    seconds: Annotated[float, typer.Option(help="Length of each of the three runs.")] = 30.0,
    target: Annotated[float, typer.Option(help="Latency target in seconds.")] = 3.0,
    page: Annotated[str, typer.Option(help="HOST:PORT of the live page; port 0 takes a free one.")] = LISTEN,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the live page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what Floodway does: a shop's JSON events, twice what this machine can process, with and without it.

    First the job is measured, so that it is overload on any machine. Then it runs three times: without Floodway, with a
    fixed sample as one would write by hand, and with Floodway. Ends in a table and in demo.png in the folder --out.

    Example: floodway demo --out demo-out --open
    """
    from floodway.spark.session.session import spark_session

    above_zero("--seconds", seconds, "30")
    above_zero("--target", target, "3")
    usable_folder("--out", out)
    story = import_module(STORY)
    say = partial(typer.echo, err=as_json)
    with tempfile.TemporaryDirectory(prefix="floodway-demo-") as folder, _Progress(quiet=as_json) as told:
        base = Path(folder)
        say("A web shop's clicks and orders, as JSON: parsed, cleaned, enriched, counted by window.")
        say("Starting Spark …")
        spark = spark_session("floodway-demo", master="local[1]")
        try:
            capacity = story.calibrate(spark, base, told)
            rate = story.OVERLOAD * capacity
            say(f"One core processes {capacity:,.0f} events per second; {rate:,.0f} are offered.")
            runs: list[Any] = []
            with serving([base / "watched"], listen=page, open_browser=open_browser):
                for name in story.RUNS:
                    place = base / f"run{len(runs)}"
                    place.mkdir()
                    runs.append(
                        story.run(
                            spark, place, name, rate, seconds=seconds, target=target, state=base / "watched", told=told
                        )
                    )
        finally:
            spark.stop()
    out.mkdir(parents=True, exist_ok=True)
    picture = import_module(PICTURE).save(out / "demo.png", runs, target, rate)
    if as_json:
        keyed = dict(zip(("without", "sample", "with"), (run.to_dict() for run in runs), strict=True))
        print_json({"capacity": capacity, "rate": rate, "target": target, "picture": str(picture), **keyed})
    else:
        _print(runs, target, picture)


def _print(runs: Any, target: float, picture: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Twice the load, target {target:g} s", title_justify="left")
    for head in ("", "mean latency", "orders processed", "clicks processed", "value / best", "error of estimates"):
        table.add_column(head, justify="left" if not head else "right")
    for run in runs:
        earned, best = run.score
        table.add_row(
            run.name,
            "–" if run.latency is None else f"{run.latency:.1f} s",
            f"{run.kept('order'):.0%}",
            f"{run.kept('click'):.0%}",
            f"{earned:,.0f} / {best:,.0f} per s",
            "late" if run.error is None else f"{run.error:.2%}",
        )
    console = Console()
    console.print(table)
    console.print(
        "Value: an order counts 10, a click 1; best is what as many events could have earned at most.\n"
        "Estimates: clicks, orders and revenue by category, from what was kept, against all that was offered."
    )
    console.print(f"picture: {picture}", soft_wrap=True)


class _Progress:
    """A bar per phase; silent where output is for machines."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._tasks: dict[str, Any] = {}
        self._bar: Any = None

    def __enter__(self) -> _Progress:
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
