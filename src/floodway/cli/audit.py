"""`floodway audit`: reconcile a job's ledger with the journal, the logs and the sinks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from floodway.cli.arguments import AsJson, find
from floodway.cli.view.output import print_json
from floodway.errors import InputError

if TYPE_CHECKING:
    from floodway.job.ledger.audit_point import Audit
    from floodway.job.places import JobPlace
    from floodway.network.model import Network
    from floodway.spark.audit.shed import ShedAudit

EXAMPLE = "floodway audit clicks, or floodway audit runs/net"


def audit(
    job: Annotated[
        str | None,
        typer.Argument(
            help="Name of the job, or the folder or URI of its state; with --shared, the federation file.",
            metavar="NAME_OR_PLACE",
        ),
    ] = None,
    state: Annotated[str | None, typer.Option(help="The job's folder, for a network file.", hidden=True)] = None,
    shared: Annotated[
        Path | None, typer.Option(help="For a federation: the folder given to `floodway participant --shared`.")
    ] = None,
    shed: Annotated[str | None, typer.Option(help="The shed of this name.", metavar="NAME", hidden=True)] = None,
    checkpoint: Annotated[
        list[str] | None, typer.Option(help="For a shed: a checkpoint of its job that it has not noted itself.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Start over: check again what earlier audits have found to agree.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that every tuple of a job is accounted for; exit code 1 on any difference.

    Where nodes ran as processes, each node's ledger is checked, and then the links between them. In a federation, each
    fragment is checked, whoever ran it. A shed's ledger is checked against the commits of the queries it is in. An
    audit continues where the last one that found no difference has ended.

    Example: floodway audit clicks
    """
    from floodway.job.places import JobPlace

    if shed is not None and (job is not None or shared is not None):
        raise InputError("--shed goes with no other name and no --shared", hint=EXAMPLE)
    if shed is not None:
        _audit_shed(find(shed, state), checkpoint or [], full=full, as_json=as_json)
        return
    if job is None:
        raise InputError("which job?", hint=EXAMPLE)
    if shared is not None:
        if state is not None:
            raise InputError("give either --state or --shared", hint=EXAMPLE)
        _audit_federation(Path(job), shared, full=full, as_json=as_json)
        return
    file = Path(job) if Path(job).is_file() else None
    if file is not None and state is None:
        raise InputError(f"{file} is a file, not a job", hint=f"Give the name or the folder of the job: {EXAMPLE}")
    found = JobPlace.of(Path(state)) if file is not None and state is not None else find(job, state)
    folder = found.folder
    network = None if folder is None else _network(folder, file)
    if network is None or folder is None:
        _audit_shed(found, checkpoint or [], full=full, as_json=as_json)
    elif checkpoint:
        raise InputError("--checkpoint is for a shed", hint=f"{folder} holds the network {network.name!r}")
    elif found.nodes:
        _audit_nodes(network, folder, full=full, as_json=as_json)
    else:
        _audit_run(network, folder, full=full, as_json=as_json)


def _network(folder: Path, file: Path | None) -> Network | None:
    """The network that ran: that of the file, if it belongs to the folder, else the one that the run left."""
    from floodway.agent.loop.run_files import check_owner, saved_network
    from floodway.network.file import load_network

    if file is None:
        return saved_network(folder)
    network = load_network(file)
    check_owner(folder, network)
    return network


def _audit_run(network: Network, folder: Path, *, full: bool, as_json: bool) -> None:
    from floodway.job.ledger.ledger import Ledger
    from floodway.spark.audit.run import audit as audit_run
    from floodway.spark.query.layout import RunLayout

    layout = RunLayout(folder)
    if not Ledger(layout.store).exists():
        raise InputError(f"no ledger in {folder}", hint="Give the folder that `floodway run` printed")
    result = audit_run(network, layout, full=full)
    _tell([_line(result)], {**_counts(result), "lines": result.lines}, [result], as_json=as_json)


def _audit_shed(job: JobPlace, checkpoints: Sequence[str], *, full: bool, as_json: bool) -> None:
    from floodway.job.places import ShedFiles
    from floodway.spark.audit.shed import audit_shed

    if job.nodes:
        raise InputError(f"{job.place} is the folder of a network, not of a shed", hint="Leave --shed out")
    result = audit_shed(job.name, ShedFiles(job.store), time.time(), checkpoints, full=full)
    line = (
        f"{job.name}: {result.batches} batches, {result.offered:,} tuples offered, {result.kept:,} kept, "
        f"{result.dropped:,} dropped; {result.gaps} batches without counts"
    )
    lines = [line, *([_recovered(result)] if result.recovered or result.lost else [])]
    _tell(lines, {**asdict(result), "remaining": result.remaining}, [result], as_json=as_json)


def _recovered(one: ShedAudit) -> str:
    """What backfills have made of the dropped tuples."""
    if one.remaining or one.gaps:
        return f"{one.recovered:,} recovered, {one.lost:,} lost; {one.remaining:,} dropped tuples remain"
    return (
        f"{one.kept:,} kept + {one.recovered:,} recovered{f' + {one.lost:,} lost' if one.lost else ''} "
        f"= {one.offered:,} offered"
    )


def _audit_nodes(network: Network, folder: Path, *, full: bool, as_json: bool) -> None:
    from floodway.spark.audit.nodes import audit_nodes
    from floodway.spark.query.layout import NodeLayout

    result = audit_nodes(network, NodeLayout(folder), full=full)
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


def _audit_federation(path: Path, shared: Path, *, full: bool, as_json: bool) -> None:
    from floodway.contracts.federation_file import load_federation
    from floodway.spark.audit.run import audit_federation

    found = audit_federation(load_federation(path), shared, full=full)
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
