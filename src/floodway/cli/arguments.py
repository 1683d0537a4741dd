"""Arguments and options that several commands have, and how they are checked before anything slow starts.

The options of a job are made from their one declaration (`job/options/flags.py`). A command that starts a job is
decorated with `job_command` and takes `given`: what was typed for a job's options, by field. `flags.parsed` turns that
into values. So all such commands have the same flags, in the same panels.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.errors import InputError
from floodway.job.options.flags import FLAGS, Flag, Given

if TYPE_CHECKING:
    from floodway.job.places import JobPlace

PROCESS = "Process and peers"
"""The panel of options about processes that talk to each other."""

Job = Annotated[
    str, typer.Argument(help="Name of the job, or the folder or URI of its state.", metavar="NAME_OR_PLACE")
]
State = Annotated[
    str | None,
    typer.Option(help="Where to look for the name, if not among this user's jobs.", hidden=True),
]
NetworkFile = Annotated[Path, typer.Argument(help="The network file.", metavar="NET.yaml")]
Feeds = Annotated[str, typer.Option(help="Feed streams at these rates, such as s1=100,s2=5k/s; default max_rate.")]
Settle = Annotated[str, typer.Option(help="Time at the start left out of latency and score.", metavar="DURATION")]
ReportFile = Annotated[Path | None, typer.Option(help="Write the JSON report to this file too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Control = Annotated[str, typer.Option(help="alone, dfit or coordinator: who plans.", rich_help_panel=PROCESS)]
KeyFile = Annotated[Path | None, typer.Option(help="File with the key that signs requests.", rich_help_panel=PROCESS)]
Links = Annotated[
    str | None,
    typer.Option(help="Links over Kafka: kafka://host:port, then /prefix; default logs.", rich_help_panel=PROCESS),
]
Master = Annotated[
    str | None, typer.Option(help="Spark's master, such as spark://host:7077 or yarn; default this machine.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(help="A Spark setting key=value, such as spark.jars.packages=…; may be repeated."),
]
GivenOptions = dict[str, Given | None]


def find(job: str, state: str | None = None) -> JobPlace:
    """The job of this name or at this place; InputError if there is none."""
    from floodway.job.places import find_job
    from floodway.spark.session.stores import open_store

    return find_job(job, open_store, state)


def find_or_root(job: str) -> str:
    """The place of a job by its name or place, or a folder that holds jobs or will: one may start later."""
    from floodway.job.places import job_names, place_of
    from floodway.spark.session.stores import open_store

    place = place_of(job)
    if place is not None and (Path(place).is_dir() or job_names(open_store(place), open_store)):
        return place
    return find(job).place


def above_zero(option: str, value: float | None, example: str) -> None:
    """Refuse what is not a positive, finite number; an option that was not given passes.

    >>> above_zero("--target", 2.0, "2")
    """
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"{option} {value:g} is not above 0", hint=f"Give a number such as {example}")


def writable(option: str, path: Path | None) -> None:
    """Refuse a file that could not be written at the end: its folder is missing, or it is a folder itself."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder", hint="Name a file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}", hint="Make it first")


def usable_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that cannot be one, because a file has that name or lies above it."""
    if path is None:
        return
    for place in (path.absolute(), *path.absolute().parents):
        if place.exists():
            if not place.is_dir():
                raise InputError(f"{option} {path}: {place} is a file", hint="Give another folder")
            return


def parse_conf(pairs: Iterable[str] | None) -> dict[str, str]:
    """Read `key=value` settings of Spark.

    >>> parse_conf(["spark.driver.memory=1g"])
    {'spark.driver.memory': '1g'}
    """
    from floodway.job.options.values import settings

    found: dict[str, str] = settings("--conf", "\n".join(pairs or ()))
    return found


def job_command(function: Callable[..., None]) -> Callable[..., None]:
    """The command with the flags of a job in place of its parameter `given`."""
    flags = {name: _parameter(name, one) for name, one in FLAGS.items()}

    @wraps(function)
    def command(**values: Any) -> None:
        given: GivenOptions = {name: _plain(values.pop(name)) for name in flags}
        function(given=given, **values)

    own = inspect.signature(function, eval_str=True).parameters.values()
    found = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one.name != "given"]
    found += flags.values()
    command.__dict__["__signature__"] = inspect.Signature(found)
    command.__annotations__ = {one.name: one.annotation for one in found}
    return command


def _parameter(name: str, one: Flag) -> inspect.Parameter:
    kind: Any = {"switch": bool | None, "several": list[str] | None, "text": str | None}[one.form]
    flag = f"{one.flag}/--no-{one.flag.removeprefix('--')}" if one.form == "switch" else one.flag
    told = typer.Option(flag, help=one.help, metavar=one.metavar, rich_help_panel=one.panel, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, told])


def _plain(value: Any) -> Given | None:
    return tuple(value) if isinstance(value, list) else value
