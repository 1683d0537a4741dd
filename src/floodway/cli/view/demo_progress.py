"""A progress bar for each phase of the demo."""

from __future__ import annotations

from typing import Any


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
