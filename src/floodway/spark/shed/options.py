"""What a user asks of a shed: in the code, or in Spark's settings where the code leaves it out.

    spark.floodway.NAME.OPTION        of the shed of this name
    spark.floodway.OPTION             of every shed of the session

OPTION is an argument of `floodway.shed`: `target_latency`, `mode`, `controller`, `headroom`, `key` … Columns in a list
are separated by commas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pyspark.sql import Column

from floodway.control.base import Controller
from floodway.errors import InputError, suggestion
from floodway.job.decision import checked_mode
from floodway.job.options.values import Target
from floodway.spark.shed.chooser import ShedSettings
from floodway.units import PPM, duration_us

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy
    from floodway.spark.shed.window_drop import WindowDrop

PREFIX = "spark.floodway."
MOST_SAMPLED = 10_000
EXPIRES_AFTER, NEVER = "60s", "never"
MOST_FLOOR = 0.5


def _columns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _weights(text: str) -> dict[str, float]:
    """`gold=3, free=0.5`; ValueError for anything else."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    if any(not key.strip() for key, _, _ in pairs):
        raise ValueError(text)
    return {key.strip(): float(weight) for key, _, weight in pairs}


def _switch(text: str) -> bool:
    """`true` or `false`; ValueError for anything else."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(text)
    return text.strip().lower() == "true"


def _law_options(text: str) -> dict[str, object]:
    """`gain=0.5, headroom=0.9`."""
    pairs = [part.partition("=") for part in text.split(",")]
    return {name.strip(): float(value) for name, _, value in pairs}


def _accuracy(text: str) -> Accuracy:
    """`sum(price) by page within 0.01`."""
    from floodway.job.options.accuracy import Accuracy

    return Accuracy.of(text)


FROM_TEXT: Mapping[str, Callable[[str], object]] = {
    "target_latency": str,
    "mode": str,
    "controller": str,
    "options": _law_options,
    "headroom": float,
    "utility": str,
    "floor": float,
    "key": _columns,
    "identity": _columns,
    "share_by": str,
    "weights": _weights,
    "accuracy": _accuracy,
    "keep_rare": int,
    "rare_by": str,
    "skip_when_lag": int,
    "arrival": str,
    "seed": int,
    "side_output": int,
    "expires_after": str,
    "shed_after": str,
    "ask_executors": _switch,
    "lossless": _switch,
    "max_age": str,
    "timestamp": str,
}
"""The options that a setting may have, and how its text is read."""

_EXAMPLES = {"weights": "gold=3, free=0.5", "options": "gain=0.5", "ask_executors": "true or false", "lossless": "true"}


@dataclass(frozen=True)
class ShedOptions:
    """The arguments of `floodway.shed`; None is left out."""

    target_latency: str | float | None = None
    mode: str | None = None
    controller: str | Controller[Any] | None = None
    options: Mapping[str, object] | None = None
    headroom: float | None = None
    utility: str | Column | None = None
    floor: float | None = None
    key: str | Sequence[str] | None = None
    share_by: str | None = None
    weights: Mapping[str, float] | None = None
    accuracy: Accuracy | None = None
    keep_rare: int | None = None
    rare_by: str | None = None
    identity: str | Sequence[str] | None = None
    arrival: str | None = None
    window: WindowDrop | None = None
    seed: int | None = None
    side_output: int | None = None
    expires_after: str | float | None = None
    shed_after: str | float | None = None
    ask_executors: bool | None = None
    lossless: bool | None = None
    skip_when_lag: int | None = None
    max_age: str | float | None = None
    timestamp: str | None = None
    state_dir: str | None = None

    def completed(self, name: str, setting: Callable[[str], str | None]) -> ShedOptions:
        """With what Spark's settings say of the options that the code leaves out."""
        found: dict[str, Any] = {}
        for option, read in FROM_TEXT.items():
            for key in (f"{PREFIX}{name}.{option}", f"{PREFIX}{option}"):
                if getattr(self, option) is None and option not in found and (text := setting(key)) is not None:
                    try:
                        found[option] = read(text)
                    except ValueError:
                        example = _EXAMPLES.get(option, "1 or 0.9, say")
                        what = "true or false" if FROM_TEXT[option] is _switch else "a number"
                        raise InputError(f"{key}={text} is not {what}", hint=f"Write {example}") from None
        return replace(self, **found)

    def checked(self, name: str) -> ShedOptions:
        """Itself; InputError for options that exclude each other or have no such value."""
        self._check_types(name)
        if self.window is not None and (self.utility is not None or self.key is not None):
            raise InputError(
                f"shed {name!r}: window= drops whole windows, so it takes neither utility= nor key=",
                hint="Use one of them.",
            )
        if self.skip_when_lag is not None and (type(self.skip_when_lag) is not int or self.skip_when_lag < 1):
            raise InputError(
                f"shed {name!r}: skip_when_lag={self.skip_when_lag!r} is no number of tuples of at least 1",
                hint="It is how many tuples may wait in Kafka",
            )
        if self.window is not None and (self.max_age is not None or self.skip_when_lag is not None):
            option = "skip_when_lag=" if self.max_age is None else "max_age="
            raise InputError(
                f"shed {name!r}: {option} would take a part of the tuples out of a window, which window= keeps whole",
                hint="Use one of them.",
            )
        if self.utility is not None and self.key is not None:
            raise InputError(
                f"shed {name!r}: utility= and key= cannot both decide",
                hint="Make the utility a function of the key.",
            )
        self._check_lossless(name)
        self._check_shares(name)
        self._check_accuracy(name)
        self._check_rare(name)
        if not 0.0 <= (self.floor or 0.0) <= MOST_FLOOR or (self.floor and self.utility is None):
            raise InputError(
                f"shed {name!r}: floor={self.floor} is no share in [0, {MOST_FLOOR}] of tuples chosen by utility=",
                hint="Give utility= and a small share, such as 0.02.",
            )
        if not 0 <= (self.side_output or 0) <= MOST_SAMPLED:
            raise InputError(
                f"shed {name!r}: side_output={self.side_output} is not in [0, {MOST_SAMPLED}]",
                hint="It is tuples per micro-batch; they travel to the driver.",
            )
        if self.target_latency is not None:
            self.settings(name)
        return self

    def _check_types(self, name: str) -> None:
        """What would else mean something: any text is true, and one without `shape` fails deep inside."""
        for option in ("ask_executors", "lossless"):
            if not isinstance(getattr(self, option), bool | None):
                raise InputError(f"shed {name!r}: {option}={getattr(self, option)!r} is neither True nor False")
        if self.window is not None and not hasattr(self.window, "shape"):
            raise InputError(
                f"shed {name!r}: window={self.window!r} does not name a time column and a size",
                hint='Write floodway.WindowDrop("ts", "10 seconds").',
            )

    def _check_lossless(self, name: str) -> None:
        options = ("utility", "key", "share_by", "accuracy", "keep_rare", "window", "shed_after")
        chosen = [f"{option}=" for option in options if getattr(self, option) is not None]
        if self.lossless and chosen:
            raise InputError(
                f"shed {name!r}: lossless= drops nothing, so there is nothing for {chosen[0]} to decide",
                hint="Use one of them.",
            )

    def _check_shares(self, name: str) -> None:
        others = {"utility=": self.utility, "key=": self.key, "window=": self.window}
        both = [option for option, value in others.items() if value is not None]
        if self.share_by is not None and both:
            raise InputError(
                f"shed {name!r}: share_by= and {both[0]} cannot both decide",
                hint="Use one of them.",
            )
        if self.weights and self.share_by is None:
            raise InputError(
                f"shed {name!r}: weights= are of keys, and no key is named", hint="Name a column by share_by="
            )
        for key, weight in (self.weights or {}).items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.0 < weight < math.inf:
                raise InputError(
                    f"shed {name!r}: the weight {weight!r} of {key!r} is not a number above 0",
                    hint='weights={"gold": 3} gives gold three times the share of a key that is not named',
                )

    def _check_accuracy(self, name: str) -> None:
        if self.accuracy is None:
            return
        from floodway.job.options.accuracy import Accuracy

        if not isinstance(self.accuracy, Accuracy):
            raise InputError(
                f"shed {name!r}: accuracy={self.accuracy!r} is no target",
                hint='Write floodway.Accuracy("sum(price)", by="page", within=0.01)',
            )
        others = {"utility=": self.utility, "key=": self.key, "share_by=": self.share_by, "window=": self.window}
        both = [option for option, value in others.items() if value is not None]
        if both:
            raise InputError(
                f"shed {name!r}: accuracy= needs tuples that are kept each by itself, at a keep of its own choice, "
                f"and {both[0]} decides otherwise",
                hint="Use one of them.",
            )

    def _check_rare(self, name: str) -> None:
        if self.rare_by is not None and self.keep_rare is None:
            raise InputError(
                f"shed {name!r}: rare_by= names keys, and keep_rare= does not say how many tuples of each",
                hint="Give keep_rare=1, say",
            )
        if self.keep_rare is None:
            return
        from floodway.spark.shed.keys.rare import MOST_NUMBER

        if not isinstance(self.keep_rare, int) or not 1 <= self.keep_rare <= MOST_NUMBER:
            raise InputError(
                f"shed {name!r}: keep_rare={self.keep_rare!r} is no number of tuples in [1, {MOST_NUMBER}]",
                hint="It is tuples of every key, in every task of a batch",
            )
        if self.rare_by is None and self.share_by is None:
            raise InputError(
                f"shed {name!r}: keep_rare= keeps tuples of every key, and no key is named",
                hint="Name a column by rare_by= or share_by=",
            )
        whole = [option for option, value in {"key=": self.key, "window=": self.window}.items() if value is not None]
        if whole:
            raise InputError(
                f"shed {name!r}: {whole[0]} keeps or drops tuples together, and keep_rare= would take some apart",
                hint="Use one of them.",
            )

    def settings(self, name: str) -> ShedSettings:
        """What the loop works with; InputError without a target."""
        if self.target_latency is None:
            raise InputError(
                f"shed {name!r} has no target latency",
                hint=f"Give target_latency=, or set {PREFIX}target_latency in Spark's settings.",
            )
        target = Target.of("target_latency", self.target_latency)
        headroom = 1.0 if self.headroom is None else self.headroom
        return ShedSettings(
            name=name,
            target_seconds=target.seconds,
            controller=_law(self.controller or "batch", target, headroom, self.options or {}),
            mode=checked_mode(self.mode or "observe"),
            salt=crc32(name.encode()) if self.seed is None else self.seed,
            headroom=headroom,
            by_utility=self.utility is not None,
            floor_ppm=round((self.floor or 0.0) * PPM),
            window=None if self.window is None else self.window.shape,
            share_by=self.share_by,
            accuracy=self.accuracy,
            keep_rare=self.keep_rare or 0,
            rare_by=(self.rare_by or self.share_by) if self.keep_rare else None,
            weights=tuple((str(key), float(weight)) for key, weight in (self.weights or {}).items()),
            expires_seconds=self._expires_seconds(),
            shed_after_seconds=self._shed_after_seconds(),
            lossless=bool(self.lossless),
            quantile=target.quantile,
            skip_when_lag=self.skip_when_lag,
            max_age_us=None if self.max_age is None else duration_us("max_age", self.max_age),
        )

    def _shed_after_seconds(self) -> float:
        if self.lossless:
            return math.inf
        return 0.0 if self.shed_after is None else duration_us("shed_after", self.shed_after) / 1e6

    def _expires_seconds(self) -> float | None:
        """How long a decision holds that nobody renews; with windows for ever, or a window would lose tuples."""
        if self.window is not None or self.expires_after == NEVER:
            return None
        return duration_us("expires_after", EXPIRES_AFTER if self.expires_after is None else self.expires_after) / 1e6


def names_of(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Columns as a tuple, one or several; None if none is named."""
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)


def refuse_unknown(keys: Sequence[str]) -> None:
    """Refuse settings that look like ours and are none: a typing error would change nothing without a word."""
    known = [*FROM_TEXT, "state", "state.shared"]
    for key in keys:
        option = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and option not in known and option.rpartition(".")[2] not in FROM_TEXT:
            from floodway.job.options.flags import FLAGS

            flag = FLAGS.get(option.rpartition(".")[2])
            if flag is not None and "shed" in flag.refused:
                raise InputError(f"{key} means nothing to a shed: {flag.refused['shed']}", hint="Leave it out")
            raise InputError(f"{key} is not a setting of Floodway", hint=suggestion(option, known))


def _law(
    controller: str | Controller[Any], target: Target, headroom: float, options: Mapping[str, object]
) -> Controller[Any]:
    """The law for the target: for that of a percentile, a law for the mean that is told which mean to hold."""
    law = _controller(controller, target.seconds * headroom, options)
    if target.quantile is None:
        return law
    from floodway.control.percentile import Percentile

    return Percentile(law, target.quantile, target.seconds * headroom)


def _controller(
    controller: str | Controller[Any], target_seconds: float, options: Mapping[str, object]
) -> Controller[Any]:
    if isinstance(controller, Controller):
        if options:
            raise InputError(
                f"options={dict(options)!r} are for a controller given by name",
                hint="Give them to the instance, or give the controller's name.",
            )
        return controller
    from floodway.control.registry import controllers, make_controller  # an instance needs no names

    factory = controllers().get(controller)
    if factory is not None and "target_seconds" in {f.name for f in fields(factory.config)}:
        options = {"target_seconds": target_seconds, **options}
    return make_controller(controller, **options)
