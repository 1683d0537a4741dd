"""Does the ledger tell the truth? Reconcile it with Spark's journal, with the logs and with the sinks, to the tuple.

For every query of a run:

- the ledger's own rules hold: offered = kept + dropped, no batch missing, no replay that counted otherwise;
- every batch that Spark committed has its lines, and each line is what the journaled decision gives when applied again;
- the batches follow each other without a hole or an overlap from where the query began, and reach no further than the
  log does (`sources.py`);
- what an operator got is what the one before it passed on (`flow.py`);
- every checkpoint that the query has had is a query of its own (`journal.query_key`): who deletes one to process
  everything again adds to the ledger and to the sinks; what the deleted one read can no longer be derived;
- what the ledger says was delivered, or malformed, is what lies there, no tuple more or less (`sinks.py`).

What cannot be checked from here is said as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from floodway.job.ledger.findings import Audit, Findings, delivered, malformed
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.network.model import Network
from floodway.spark.audit.flow import check_flow
from floodway.spark.audit.sinks import check_log, check_sink
from floodway.spark.audit.sources import QueryBooks, check_sources, query_keys
from floodway.spark.query.dead_letters import DEAD
from floodway.spark.query.fragments import Fragment, fragments
from floodway.spark.query.layout import Layout
from floodway.spark.query.logs import sink_log
from floodway.spark.query.sinks import writer_of

__all__ = ["Audit", "audit", "audit_queries"]


def audit(network: Network, layout: Layout, nodes: Sequence[str] = ()) -> Audit:
    """Reconcile a run's ledger; an empty list of differences means that every tuple is accounted for."""
    parts = [fragment for node in nodes or tuple(network.nodes) for fragment in fragments(network, node)]
    return audit_queries(network, parts, layout)


def audit_queries(network: Network, queries: Iterable[Fragment], layout: Layout) -> Audit:
    """Reconcile the ledger of these queries: those of a run, or one that moves between participants.

    What it needs of the latter lies on the storage that they share, so the answer is the same whoever ran which batch.
    """
    ledger = Ledger(layout.store)
    lines = ledger.read()
    found = Findings([*ledger.torn_now(), *Fold(lines).differences()])
    by_query: dict[str, list[LedgerLine]] = {}
    for line in lines:
        by_query.setdefault(line.query, []).append(line)
    parts = {key: f for f in queries for key in query_keys(f.query, layout.checkpoint(f), by_query)}
    writers = _writers(network, layout, parts)
    for query, fragment in parts.items():
        mine = by_query.get(query, [])
        inputs = {spec.location or spec.name: layout.source(network, fragment, spec) for spec in fragment.sources}
        check_sources(QueryBooks(query, mine, layout.checkpoint(fragment), inputs, layout.lost), found)
        check_flow(network, fragment, mine, found)
        for spec in fragment.sources:
            said = malformed(mine, spec.location or spec.name)
            if said:
                others = {writer_of(key, DEAD) for key, same in parts.items() if same is fragment}
                log, place = layout.dead_letters(spec), f"dead letters of {spec.name}"
                check_log(log, writer_of(query, DEAD), place, said, found, others - {writer_of(query, DEAD)})
        for sink in (*fragment.outputs, *map(str, fragment.cut)):
            address = _address(network, layout, sink)
            others = writers[address] - {writer_of(query, sink)}
            shared = sink in network.outputs and not layout.owns(network, sink)
            check_sink(address, query, sink, delivered(mine, sink), found, others, shared=shared)
    return Audit(
        batches=sum(len({line.batch for line in by_query.get(query, [])}) for query in parts),
        lines=len(lines),
        tuples_offered=sum(
            line.offered for line in lines if line.reason == Reason.SHEDDER and line.at in network.streams
        ),
        tuples_delivered=sum(
            line.kept for line in lines if line.reason == Reason.DELIVERED and line.at in network.outputs
        ),
        differences=tuple(found.differences),
        unchecked=tuple(dict.fromkeys(found.unchecked)),
    )


def _writers(network: Network, layout: Layout, parts: dict[str, Fragment]) -> dict[str, set[str]]:
    """Who writes to each sink: outputs may share one."""
    writers: dict[str, set[str]] = {}
    for query, fragment in parts.items():
        for sink in (*fragment.outputs, *map(str, fragment.cut)):
            writers.setdefault(_address(network, layout, sink), set()).add(writer_of(query, sink))
    return writers


def _address(network: Network, layout: Layout, sink: str) -> str:
    log = sink_log(network, layout, sink)
    return layout.output(network, sink) if log is None else str(log)
