"""A catalogue: named query fragments that a participant is willing to run, each with the form of its parameters.

Between participants only names and parameters travel. A name that the catalogue does not have, a parameter that its
entry does not know, or one of the wrong kind is refused before anything starts.

>>> from pydantic import BaseModel
>>> class Window(BaseModel, extra="forbid"):
...     seconds: int = 60
>>> catalogue = Catalogue()
>>> @catalogue.entry("hits", inputs=("clicks",), parameters=Window)
... def hits(inputs, parameters):
...     return inputs["clicks"]
>>> catalogue.check("hits", ("clicks",), {"seconds": 10}).seconds
10
>>> catalogue.check("hit", ("clicks",), {})
Traceback (most recent call last):
...
floodway.spark.query.catalogue.CatalogueError: the catalogue has no entry 'hit'. Did you mean hits?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from floodway.errors import FloodwayError, InputError, suggestion
from floodway.spark.log.kafka_links import is_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Build = Callable[[Mapping[str, DataFrame], Any], DataFrame]

ATTRIBUTE = "CATALOGUE"


class CatalogueError(FloodwayError):
    """A name or a parameter that this catalogue does not have."""

    exit_code = 2


class NoParameters(BaseModel, extra="forbid"):
    """For entries that take none."""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A function from streaming DataFrames by input name, and checked parameters, to one streaming DataFrame.

    `schemas` has the columns of inputs, as DDL: those it has may be Kafka topics with JSON values.
    """

    name: str
    inputs: tuple[str, ...]
    parameters: type[BaseModel]
    build: Build
    schemas: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Catalogue:
    """Entries by name; a module offers one as its `CATALOGUE`."""

    entries: dict[str, CatalogueEntry] = field(default_factory=dict)

    def entry(
        self,
        name: str,
        *,
        inputs: Iterable[str] | Mapping[str, str],
        parameters: type[BaseModel] = NoParameters,
    ) -> Callable[[Build], Build]:
        """Decorator: put a function in the catalogue. `inputs` are names, or names with the columns of each as DDL."""
        if parameters.model_config.get("extra") != "forbid":
            raise InputError(
                f"the parameters of catalogue entry {name!r} let unknown ones pass",
                hint='Declare the model with extra="forbid"',
            )

        def put(build: Build) -> Build:
            if name in self.entries:
                raise InputError(f"the catalogue has two entries {name!r}", hint="Rename one")
            schemas = dict(inputs) if isinstance(inputs, Mapping) else {}
            self.entries[name] = CatalogueEntry(name, tuple(inputs), parameters, build, schemas)
            return build

        return put

    def get(self, name: str) -> CatalogueEntry:
        """An entry, or an error that names the nearest."""
        if name not in self.entries:
            raise CatalogueError(f"the catalogue has no entry {name!r}", hint=suggestion(name, sorted(self.entries)))
        return self.entries[name]

    def check(self, name: str, inputs: Iterable[str], parameters: Mapping[str, Any]) -> Any:
        """The parameters in the entry's own form; refuses unknown names, inputs and parameters.

        `inputs` may say where each input is: a topic for an input without a schema is refused too.
        """
        entry = self.get(name)
        if set(inputs) != set(entry.inputs):
            raise CatalogueError(
                f"entry {name!r} reads {', '.join(entry.inputs)}, not {', '.join(sorted(inputs)) or 'nothing'}",
                hint="Name a log for each of its inputs, and no other",
            )
        for topic, address in inputs.items() if isinstance(inputs, Mapping) else ():
            if is_topic(address) and topic not in entry.schemas:
                raise CatalogueError(
                    f"entry {name!r} does not say what the values of Kafka topics for {topic!r} hold",
                    hint=f'Declare it with inputs={{"{topic}": "at timestamp, ..."}}',
                )
        try:
            return entry.parameters.model_validate(dict(parameters), strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "parameters"
            known = ", ".join(entry.parameters.model_fields) or "none"
            raise CatalogueError(
                f"entry {name!r} refuses {where}: {first['msg'].lower()}", hint=f"Its parameters are {known}"
            ) from None


def load_catalogue(module: str) -> Catalogue:
    """The catalogue of an installed module, such as `examples.intrusion_catalogue`."""
    try:
        found = getattr(import_module(module), ATTRIBUTE, None)
    except ImportError as error:
        raise InputError(
            f"catalogue module {module!r} cannot be imported: {error}",
            hint="Install it, or run where it is on Python's path",
        ) from None
    if not isinstance(found, Catalogue):
        raise InputError(f"module {module!r} has no catalogue", hint=f"Give it {ATTRIBUTE} = Catalogue()")
    return found
