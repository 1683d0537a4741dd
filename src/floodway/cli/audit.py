"""`floodway audit`: reconcile a run's ledger with the journal, the logs and the sinks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from floodway.cli.output import print_json

if TYPE_CHECKING:
    from floodway.job.findings import Audit


def audit(
    network: Annotated[
        Path | None, typer.Argument(help="The network file, or the federation file.", metavar="NET.yaml")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="The run's folder, as given to `floodway run` or `up --state`; or the shed's.")
    ] = None,
    shared: Annotated[
        Path | None, typer.Option(help="For a federation: the folder given to `floodway participant --shared`.")
    ] = None,
    shed: Annotated[str | None, typer.Option(help="Instead of a run, the shed of this name.", metavar="NAME")] = None,
    checkpoint: Annotated[
        list[str] | None, typer.Option(help="With --shed: a checkpoint of its job that it has not noted itself.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check that every tuple of a run is accounted for; exit code 1 on any difference.

    Where nodes ran as processes, each node's ledger is checked, and then the links between them. In a federation, each
    fragment is checked, whoever ran it. A shed's ledger is checked against the commits of the queries it is in.

    Example: floodway audit net.yaml --state runs/net
    """
    from floodway.agent.loop.claim import check_owner
    from floodway.errors import InputError
    from floodway.job.ledger import Ledger
    from floodway.network.file import load_network
    from floodway.spark.audit.run import audit as reconcile
    from floodway.spark.query.layout import Layout
    from floodway.spark.query.node_layout import NodeLayout

    if shed is not None:
        if network is not None or shared is not None:
            raise InputError("--shed goes with no network file and no --shared", hint="floodway audit --shed clicks")
        _audit_shed(shed, state, checkpoint or [], as_json=as_json)
        return
    if network is None or checkpoint:
        raise InputError(
            "give a network file, or the name of a shed",
            hint="floodway audit net.yaml --state runs/net, or --shed clicks",
        )
    if shared is not None and state is None:
        _audit_federation(network, shared, as_json=as_json)
        return
    if state is None or shared is not None:
        raise InputError("give either --state or --shared", hint="floodway audit net.yaml --state runs/net")
    check_owner(state, load_network(network))
    if NodeLayout(state).is_used():
        _audit_nodes(network, state, as_json=as_json)
        return
    layout = Layout(state)
    if not Ledger(layout.store).exists():
        raise InputError(f"no ledger in {state}", hint="Give the folder that `floodway run` printed")
    result = reconcile(load_network(network), layout)
    _tell([_line(result)], {**_counts(result), "lines": result.lines}, [result], as_json=as_json)


def _audit_shed(name: str, state: Path | None, checkpoints: Sequence[str], *, as_json: bool) -> None:
    from floodway.cli.jobs import find_jobs
    from floodway.errors import InputError
    from floodway.spark.audit.shed import audit_shed

    found = find_jobs(name, state)
    if name not in found:
        raise InputError(f"{state} is the folder of a network, not of the shed {name!r}", hint="Leave --shed out")
    result = audit_shed(name, found[name], time.time(), checkpoints)
    line = (
        f"{name}: {result.batches} batches, {result.offered:,} tuples offered, {result.kept:,} kept, "
        f"{result.dropped:,} dropped; {result.gaps} batches without counts"
    )
    _tell([line], asdict(result), [result], as_json=as_json)


def _audit_nodes(network: Path, state: Path, *, as_json: bool) -> None:
    from floodway.network.file import load_network
    from floodway.spark.audit.nodes import audit_nodes
    from floodway.spark.query.node_layout import NodeLayout

    result = audit_nodes(load_network(network), NodeLayout(state))
    lines = [f"{name}: {_line(one)}" for name, one in result.nodes.items()]
    lines += [
        f"{link.link}: {link.delivered:,} delivered by {link.writer}, {link.offered:,} offered to {link.reader}, "
        f"{link.waiting:,} waiting"
        for link in result.links
    ]
    body = {
        "batches": sum(one.batches for one in result.nodes.values()),
        "lines": sum(one.lines for one in result.nodes.values()),
        "nodes": {name: _counts(one) for name, one in result.nodes.items()},
        "links": {link.link: link.to_dict() for link in result.links},
    }
    _tell(lines, body, [result], as_json=as_json)


def _audit_federation(path: Path, shared: Path, *, as_json: bool) -> None:
    from floodway.agent.federation.audit import audit_federation
    from floodway.contracts.federation_file import load_federation

    found = audit_federation(load_federation(path), shared)
    lines = [f"{name}: {_line(one)}" for name, one in found.items()]
    _tell(lines, {"fragments": {name: _counts(one) for name, one in found.items()}}, found.values(), as_json=as_json)


class _Audited(Protocol):
    """What every audit says."""

    @property
    def differences(self) -> tuple[str, ...]: ...

    @property
    def unchecked(self) -> tuple[str, ...]: ...


def _line(one: Audit) -> str:
    return (
        f"{one.batches} batches, {one.lines} lines, {one.tuples_offered:,} tuples offered, "
        f"{one.tuples_delivered:,} delivered"
    )


def _counts(one: Audit) -> dict[str, int]:
    return {"batches": one.batches, "offered": one.tuples_offered, "delivered": one.tuples_delivered}


def _tell(lines: Iterable[str], body: Mapping[str, Any], audits: Iterable[_Audited], *, as_json: bool) -> None:
    """Print what was counted, what was not checked and what differs; end with 1 if anything does."""
    found = list(audits)
    differences = [text for one in found for text in one.differences]
    unchecked = [text for one in found for text in one.unchecked]
    if as_json:
        print_json({**body, "reconciled": not differences, "differences": differences, "unchecked": unchecked})
    else:
        for line in (*lines, *(f"  {note}" for note in (*unchecked, *differences))):
            typer.echo(line)
        typer.echo(f"{len(differences)} difference(s)" if differences else "reconciled")
    if differences:
        raise typer.Exit(1)
