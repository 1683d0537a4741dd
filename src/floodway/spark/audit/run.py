"""Does the ledger tell the truth? Reconcile it with Spark's journal, with the logs and with the sinks, to the tuple.

For every query of a run:

- the ledger's own rules hold: offered = kept + dropped, no batch missing, no replay that counted otherwise;
- every batch that Spark committed has its lines, and each line is what the journaled decision gives when applied again;
- the batches follow each other without a hole or an overlap from where the query began, and reach no further than the
  log does (`sources.py`);
- what an operator got is what the one before it passed on (`flow_bounds.py`);
- every checkpoint that the query has had is a query of its own (`journal.query_key`): who deletes one to process
  everything again adds to the ledger and to the sinks; what the deleted one read can no longer be derived;
- what the ledger says was delivered, or malformed, is what lies there, no tuple more or less (`sinks.py`).

What cannot be checked from here is said as well. What an earlier audit has found to agree is not looked at again
(`job/ledger/audit_point.py`), unless `full` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from floodway.contracts.federation_file import Federation
from floodway.contracts.member_network import member_network
from floodway.errors import InputError
from floodway.job.ledger.audit_point import (
    Audit,
    AuditedLedger,
    Findings,
    QueryPoint,
    delivered,
    malformed,
    open_ledger,
)
from floodway.network.model import Network
from floodway.spark.audit.flow_bounds import check_flow
from floodway.spark.audit.sinks import AuditedPart, LogCounts, SinkBooks, check_log, check_sink
from floodway.spark.audit.sources import QueryBooks, check_sources, present_key, query_keys
from floodway.spark.query.dead_letters import DEAD
from floodway.spark.query.fragments import Fragment, fragments
from floodway.spark.query.journal import committed_batches
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import sink_log
from floodway.spark.query.moving_fragment import NOWHERE, MovingLayout, moving_fragment
from floodway.spark.query.sinks import writer_of

__all__ = ["Audit", "audit", "audit_queries"]


def audit(network: Network, layout: RunLayout, nodes: Sequence[str] = (), *, full: bool = False) -> Audit:
    """Reconcile a run's ledger; an empty list of differences means that every tuple is accounted for."""
    parts = [fragment for node in nodes or tuple(network.nodes) for fragment in fragments(network, node)]
    return audit_queries(network, parts, layout, full=full)


def audit_queries(network: Network, queries: Iterable[Fragment], layout: RunLayout, *, full: bool = False) -> Audit:
    """Reconcile the ledger of these queries: those of a run, or one that moves between participants.

    What it needs of the latter lies on the storage that they share, so the answer is the same whoever ran which batch.
    """
    result, ledger = audit_ledger(network, queries, layout, full=full)
    return replace(result, unchecked=(*result.unchecked, *ledger.close(result.differences)))


def audit_ledger(
    network: Network, queries: Iterable[Fragment], layout: RunLayout, *, full: bool
) -> tuple[Audit, AuditedLedger]:
    """As `audit_queries`; where the next audit begins is for the caller to keep (`AuditedLedger.close`)."""
    mine = list(queries)
    # Before the ledger is read: what a running job commits later is no business of this audit.
    committed = {fragment.query: committed_batches(layout.checkpoint(fragment)) for fragment in mine}
    ledger = open_ledger(layout.store, full=full)
    found = Findings(ledger.differences, ledger.unchecked)
    parts = {key: f for f in mine for key in query_keys(f.query, layout.checkpoint(f), ledger.lines)}
    writers = _writers(network, layout, parts)
    for query, fragment in parts.items():
        passed, lines = ledger.query(query)
        if query != present_key(fragment.query, layout.checkpoint(fragment)):
            ledger.settle(query, ledger.newest(query))  # it will have no other batch
        after = ledger.after.queries.setdefault(query, QueryPoint())
        first = min((line.batch for line in lines), default=0) if ledger.removed else 0
        first = max(first, passed.last + 1)
        inputs = {spec.location or spec.name: layout.source(network, fragment, spec) for spec in fragment.sources}
        checkpoint = layout.checkpoint(fragment)
        check_sources(
            QueryBooks(
                query, lines, checkpoint, inputs, layout.lost, committed[fragment.query], first, passed, after
            ),
            found,
        )  # fmt: skip
        after.loose = check_flow(network, fragment, lines, found, passed.loose)
        for spec in fragment.sources:
            at = spec.location or spec.name
            said, sums = malformed(lines, at), passed.sums(at)
            if said or sums.malformed:
                writer, place = writer_of(query, DEAD), f"dead letters of {spec.name}"
                others = {writer_of(key, DEAD) for key, same in parts.items() if same is fragment} - {writer}
                before = _passed(passed, place, sums.malformed if sums.known else None, first)
                books = SinkBooks(place, said, before, others)
                _leave(after, place, check_log(layout.dead_letters(spec), writer, books, found))
        for sink in (*fragment.outputs, *map(str, fragment.cut)):
            address, sums = _address(network, layout, sink), passed.sums(sink)
            others = writers[address] - {writer_of(query, sink)}
            shared = sink in network.outputs and not layout.owns(network, sink)
            before = _passed(passed, sink, sums.delivered if sums.known else None, first)
            books = SinkBooks(sink, delivered(lines, sink), before, others, shared)
            _leave(after, sink, check_sink(address, query, books, found))
    batches, total = ledger.fold.queries(), ledger.fold.total
    return Audit(
        batches=sum(batches[query].count() for query in parts if query in batches),
        lines=ledger.fold.lines,
        tuples_offered=sum(total.offered[name] for name in network.streams),
        tuples_delivered=sum(total.delivered[name] for name in network.outputs),
        differences=tuple(found.differences),
        unchecked=tuple(dict.fromkeys(found.unchecked)),
    ), ledger


def _passed(point: QueryPoint, sink: str, tuples: int | None, first: int) -> AuditedPart:
    return AuditedPart(point.last, tuples, point.next.get(sink, {}), first)


def _leave(after: QueryPoint, sink: str, counts: LogCounts | None) -> None:
    """Note where the batches that the next audit looks at begin in a log."""
    if counts is not None:
        after.next[sink] = counts.after(after.last)


def _writers(network: Network, layout: RunLayout, parts: dict[str, Fragment]) -> dict[str, set[str]]:
    """Who writes to each sink: outputs may share one."""
    writers: dict[str, set[str]] = {}
    for query, fragment in parts.items():
        for sink in (*fragment.outputs, *map(str, fragment.cut)):
            writers.setdefault(_address(network, layout, sink), set()).add(writer_of(query, sink))
    return writers


def _address(network: Network, layout: RunLayout, sink: str) -> str:
    log = sink_log(network, layout, sink)
    return layout.output(network, sink) if log is None else str(log)


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
