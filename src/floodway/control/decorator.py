"""What wraps a controller: a law inside, a state of its own beside the law's, both in one snapshot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from floodway.control.base import Controller, Decision, GainWarning, Observation, Plain, State, StateT
from floodway.control.forecast import Forecast


@dataclass(frozen=True, slots=True)
class WrappedState(State, Generic[StateT]):
    """The state of the law inside, and what the decorator remembers."""

    law: Any
    own: StateT

    def snapshot(self) -> dict[str, Plain]:
        """Made by `Decorator.snapshot`, which knows the law's name."""
        return self.own.snapshot()


@dataclass(frozen=True, slots=True)
class Decorator(Controller[WrappedState[StateT]]):
    """A controller round another one. In a snapshot the law's keys stay as they are, its own begin with `prefix`.

    A snapshot without them, written before the decorator was there, resumes the law and starts the decorator afresh.
    """

    law: Controller[Any]
    prefix: ClassVar[str]

    @abstractmethod
    def own_initial(self) -> StateT:
        """What the decorator remembers before the first observation."""

    @abstractmethod
    def update(
        self, state: WrappedState[StateT], observation: Observation
    ) -> tuple[WrappedState[StateT], Decision]: ...

    def initial(self) -> WrappedState[StateT]:
        return WrappedState(self.law.initial(), self.own_initial())

    def forecast(self, state: WrappedState[StateT]) -> Forecast | None:
        return self.law.forecast(state.law)

    @property
    def warnings(self) -> tuple[GainWarning, ...]:
        """Those of the law."""
        return self.law.warnings

    def snapshot(self, state: WrappedState[StateT]) -> dict[str, Plain]:
        own = {self.prefix + key: value for key, value in state.own.snapshot().items()}
        return {**self.law.snapshot(state.law), **own}

    def restore(self, snapshot: Mapping[str, Plain]) -> WrappedState[StateT]:
        own = {key: value for key, value in snapshot.items() if key.startswith(self.prefix)}
        law = self.law.restore({key: value for key, value in snapshot.items() if key not in own})
        bare = {key.removeprefix(self.prefix): value for key, value in own.items()}
        return WrappedState(law, type(self.own_initial()).from_snapshot(bare))
