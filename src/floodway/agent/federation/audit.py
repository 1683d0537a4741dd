"""Every fragment of a federation against its ledger, from the storage that the participants share."""

from __future__ import annotations

from pathlib import Path

from floodway.agent.federation.leases import LeaseStore
from floodway.contracts.federation_file import Federation
from floodway.errors import InputError
from floodway.spark.audit.catalogue import audit_fragment
from floodway.spark.audit.run import Audit
from floodway.spark.log.inputs import place
from floodway.spark.query.catalogue_query import QueryFiles


def audit_federation(federation: Federation, shared: Path) -> dict[str, Audit]:
    """The audits of the fragments that have run, by name."""
    store = LeaseStore(shared, seconds=1.0)
    found = {}
    for name, spec in federation.fragments.items():
        logs = {one: place(shared, log) for one, log in spec.logs.items()}
        files = QueryFiles(logs, shared / spec.output, store.checkpoint(name), decision=shared)
        if files.checkpoint.exists():
            found[name] = audit_fragment(name, spec.logs, files)
    if not found:
        raise InputError(
            f"no fragment of {federation.name} has run on {shared}",
            hint="Give the folder that the participants were given as --shared",
        )
    return found
