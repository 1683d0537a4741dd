"""The options of a job on a command line, made from their one declaration (`job/options/flags.py`).

A command that starts a job is decorated with `job_command` and takes `given`: what was typed for a job's options, by
field. `flags.parsed` turns that into values. So all such commands have the same flags, in the same panels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from floodway.job.options.flags import FLAGS, Flag, Given

GivenOptions = dict[str, Given | None]


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
