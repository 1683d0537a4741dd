"""Every fragment of a federation against its ledger, from the storage that the participants share."""

from __future__ import annotations

from pathlib import Path

from floodway.contracts.federation_file import Federation
from floodway.contracts.member_network import member_network
from floodway.errors import InputError
from floodway.spark.audit.run import Audit, audit_queries
from floodway.spark.query.moving_fragment import NOWHERE, MovingLayout, moving_fragment


def audit_federation(federation: Federation, shared: Path, *, full: bool = False) -> dict[str, Audit]:
    """The audits of the fragments that have run, by name."""
    found = {}
    for name, spec in federation.fragments.items():
        layout, fragment = MovingLayout.of(shared, name), moving_fragment(spec)
        if layout.checkpoint(fragment).exists():
            found[name] = audit_queries(member_network([spec], NOWHERE), [fragment], layout, full=full)
    if not found:
        raise InputError(
            f"no fragment of {federation.name} has run on {shared}",
            hint="Give the folder that the participants were given as --shared",
        )
    return found
