"""What every command shares: reading `name=value` options, printing one JSON object, and figures in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from floodway.agent.loop.report import Latency


def latency_line(latency: Latency) -> str:
    """Mean and quantiles beside the target, for people."""
    if latency.mean is None:
        return f"latency: nothing was delivered; target {latency.target:g} s"
    return (
        f"latency: mean {latency.mean:.2f} s, p50 {latency.p50:.2f}, p95 {latency.p95:.2f}, "
        f"p99 {latency.p99:.2f}; target {latency.target:g} s"
    )


def deadline_lines(deadlines: Mapping[str, Any]) -> list[str]:
    """One line per stream with a deadline, for people."""
    return [
        f"deadline of {name}: {seen['in_time']:,} in time, {seen['late']:,} late ({seen['miss_ratio']:.1%}), "
        f"{seen['purged']:,} purged before they could be late"
        for name, seen in deadlines.items()
    ]


def print_json(body: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout; infinities and NaN become null, as JSON has neither."""
    typer.echo(json.dumps(_clean(body)))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
