"""The buffer's options of `floodway run`: from words to what the run is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.cli.output import parse_pairs
from floodway.errors import InputError

if TYPE_CHECKING:
    from floodway.buffering.options import BufferOptions

Buffer = Annotated[
    str | None,
    typer.Option(help="Buffer by deadlines: cwb (scheduler, adaptor, cleaner), or a baseline without: cob, aurora."),
]
Scheduler = Annotated[str | None, typer.Option(help="For cwb: edf (default), fifo, muf or priority.")]
Adaptor = Annotated[str | None, typer.Option(help="For cwb: pid (default), red, tail-drop, drop-front or random-drop.")]
Cleaner = Annotated[bool | None, typer.Option(help="For cwb: drop what would be late anyway (default), or not.")]
QueueLimit = Annotated[int | None, typer.Option(help="For cwb: most tuples that wait, over all queues.")]
MissRatio = Annotated[float | None, typer.Option(help="Permitted share of late results, default 0.01.")]
Deadlines = Annotated[
    str, typer.Option(help="Seconds by stream or partition, e.g. s1=2,s2/0=0.5; before those of the file.")
]


def buffer_options(
    buffer: str | None,
    scheduler: str | None,
    adaptor: str | None,
    cleaner: bool | None,
    queue_limit: int | None,
    miss_ratio: float | None,
    deadlines: str,
) -> BufferOptions | None:
    """What the options ask for; None if none of them was given. Any of them alone means cwb."""
    from floodway.buffering.options import MANAGERS, BufferOptions, Manager

    given: dict[str, Any] = {
        "scheduler": scheduler,
        "adaptor": adaptor,
        "cleaner": cleaner,
        "limit": queue_limit,
        "permitted_miss_ratio": miss_ratio,
        "deadlines": parse_pairs(deadlines, option="--deadlines") or None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if buffer is None and not chosen:
        return None
    manager: Manager = "cwb"
    if buffer is not None:
        if buffer not in MANAGERS:
            raise InputError(f"--buffer {buffer} is not known", hint=f"Use one of {', '.join(MANAGERS)}")
        manager = "cob" if buffer == "cob" else "aurora" if buffer == "aurora" else "cwb"
    policies = sorted(chosen.keys() & {"scheduler", "adaptor", "cleaner", "limit"})
    if manager != "cwb" and policies:
        raise InputError(
            f"--buffer {manager} has no {policies[0]}: it is the baseline without a buffer",
            hint="Leave it out, or use --buffer cwb",
        )
    return BufferOptions(manager, **chosen)


def deadline_lines(deadlines: Mapping[str, Any]) -> list[str]:
    """One line a stream for a person to read."""
    return [
        f"deadline of {name}: {seen['in_time']:,} in time, {seen['late']:,} late ({seen['miss_ratio']:.1%}), "
        f"{seen['purged']:,} purged before they could be late"
        for name, seen in deadlines.items()
    ]
