"""Section `keys` of the federation file: where the two members of a pair find the key that only they have.

    keys:
      A<->B: {env: FLOODWAY_KEY_A_B}      # an environment variable of both processes
      A<->C: {file: keys/a-c.key}         # a path; a relative one is below the folder of the federation file

The file never holds a key. With this section every pair that has a contract needs an entry of its own: a key that a
third member also has would let it speak in their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from floodway.contracts.contract import Contract
from floodway.network.fields import Fields, ProblemReport
from floodway.network.yaml_lines import Located, join

Pair = frozenset[str]
EXAMPLE = "keys: {A<->B: {env: FLOODWAY_KEY_A_B}}"


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a pair's key is: the name of an environment variable, or a path."""

    env: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"environment variable {self.env}" if self.env else f"file {self.file}"


def read_key_source(name: str, located: Located, report: ProblemReport) -> KeySource:
    """One entry of the section."""
    fields = Fields(located, join("keys", name), report, what="a key")
    found = KeySource(
        fields.text("env", pattern=r"[A-Za-z_][A-Za-z0-9_]{0,199}", shape="the name of an environment variable"),
        fields.text("file", pattern=r"[^\x00-\x1f]{1,300}", shape="a path"),
    )
    fields.finish()
    if fields.has("env") == fields.has("file"):
        report.add(join("keys", name), "needs one place: env: NAME of a variable, or file: PATH; never the key itself")
    return found


def pair_keys(
    found: Mapping[str, KeySource], members: Collection[str], contracts: Iterable[Contract], report: ProblemReport
) -> dict[Pair, KeySource]:
    """The section's entries by pair; a pair twice, without a contract, or left out is reported."""
    needed = {frozenset({one.giver, one.taker}): str(one) for one in contracts}
    made: dict[Pair, KeySource] = {}
    places: dict[KeySource, str] = {}
    for key, source in found.items():
        path = join("keys", key)
        one, arrow, other = (part.strip() for part in key.partition("<->"))
        if not arrow or not one or not other or one == other:
            report.add(path, "a key is named by the two participants that have it, such as A<->B")
            continue
        unknown = [name for name in (one, other) if name not in members]
        for name in unknown:
            report.unknown(path, "participant", name, members)
        if unknown:
            continue
        pair = frozenset({one, other})
        if pair not in needed:
            report.add(path, f"{one} and {other} have no contract; leave the key out")
        elif pair in made:
            report.add(path, f"{one} and {other} have a key already; keep one")
        elif source in places:
            report.add(path, f"is the {source}, as for {places[source]}; give every pair a key of its own")
        made[pair] = source
        places.setdefault(source, key)
    for pair, contract in needed.items() if found else ():
        if pair not in made:
            report.add("keys", f"has none for contract {contract}; write {'<->'.join(sorted(pair))}: {{file: PATH}}")
    return made
