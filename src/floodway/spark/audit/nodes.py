"""Do the ledgers of all nodes agree, end to end? What one delivered to a link is what the other was offered, or waits.

For every link between two nodes, in tuples:

    delivered by the writer's ledger = length of the link's log = offered by the reader's ledger + still waiting

A writer that was killed in a batch may have filled the log and not the ledger: the restarted batch finds its tuples
there and accounts for them. Until then they are told as `unfinished`, and are no difference.

A link over Kafka is counted by its records' headers (`log/kafka_links.py`), batch by batch as far as Kafka still has
them. Records that are there twice are told, and are a difference: the reader was offered tuples that nobody delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.job.ledger.audit_point import AuditedLedger, AuditPoint, QueryPoint
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.model import Network
from floodway.network.part import incoming
from floodway.spark.audit.run import Audit, audit_ledger
from floodway.spark.audit.sinks import count_log
from floodway.spark.audit.sources import present_key, query_keys
from floodway.spark.log.kafka_links import LinkCounts, is_topic, link_counts
from floodway.spark.log.meta import META
from floodway.spark.query.fragments import fragments
from floodway.spark.query.layout import NodeLayout
from floodway.spark.query.sinks import writer_of


@dataclass(frozen=True, slots=True)
class LinkAccount:
    """One link's tuples: what its writer says it delivered, what its log holds, what its reader says it was offered.

    `unfinished` are those in the log of a batch that the writer's ledger does not hold yet. `wrong` are sentences about
    single batches; only a link over Kafka has any here, those of logs are in the writer's own audit.
    """

    link: str
    writer: str
    reader: str
    delivered: int
    unfinished: int
    in_log: int
    offered: int
    repeated: int = 0
    wrong: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Tuples in the log that the reader has not taken yet."""
        return self.in_log - self.offered

    def to_dict(self) -> dict[str, int]:
        """As in the `--json` output."""
        return {
            "delivered": self.delivered,
            "unfinished": self.unfinished,
            "in_log": self.in_log,
            "offered": self.offered,
            "waiting": self.waiting,
            "repeated": self.repeated,
        }

    def differences(self) -> list[str]:
        """What does not agree, as sentences."""
        found = list(self.wrong)
        if self.repeated:
            found.append(f"{self.link}: {self.repeated} record(s) are in the topic twice; did two {self.writer} run?")
        if self.delivered + self.unfinished + self.repeated != self.in_log:
            unfinished = f" and {self.unfinished} of an unfinished batch" if self.unfinished else ""
            found.append(
                f"{self.link}: {self.writer}'s ledger delivered {self.delivered}{unfinished}, "
                f"the log holds {self.in_log}"
            )
        if self.offered > self.in_log:
            found.append(f"{self.link}: {self.reader}'s ledger was offered {self.offered}, the log holds {self.in_log}")
        return found


@dataclass(frozen=True, slots=True)
class NodesAudit:
    """The audits of all nodes, and the accounts of the links between them."""

    nodes: dict[str, Audit]
    links: tuple[LinkAccount, ...]
    differences: tuple[str, ...]
    silent: tuple[str, ...] = ()

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What could not be checked from here, by node; then links whose broker did not answer."""
        counted = {link.link for link in self.links}
        notes = [
            f"{node}: {note}"
            for node, one in self.nodes.items()
            for note in one.unchecked
            if note.partition(":")[0] not in counted
        ]
        return (*notes, *self.silent)


def audit_nodes(network: Network, layout: NodeLayout, *, full: bool = False) -> NodesAudit:
    """Reconcile the ledger of every node, then the links between them."""
    audits: dict[str, Audit] = {}
    ledgers: dict[str, AuditedLedger] = {}
    for node in _with_operators(network):
        own, part = layout.own(node), layout.part(network, node)
        if own.root.is_dir():
            audits[node], ledgers[node] = audit_ledger(part, fragments(part, node), own, full=full)
        else:
            ledgers[node] = AuditedLedger(own.store, AuditPoint(), AuditPoint())
    links, silent = link_accounts(network, layout, ledgers)
    differences = [f"{node}: {text}" for node, one in audits.items() for text in one.differences]
    differences += [text for account in links for text in account.differences()]
    if not silent:  # what was not counted now is for the next audit
        for node, one in audits.items():
            of_links = [text for link in links if node in (link.writer, link.reader) for text in link.differences()]
            silent += [f"{node}: {text}" for text in ledgers[node].close([*one.differences, *of_links])]
    return NodesAudit(audits, tuple(links), tuple(differences), tuple(silent))


def link_accounts(
    network: Network, layout: NodeLayout, ledgers: Mapping[str, AuditedLedger]
) -> tuple[list[LinkAccount], list[str]]:
    """The account of every link whose log is there, and sentences on those whose broker does not answer."""
    found: list[LinkAccount] = []
    silent: list[str] = []
    for node in _with_operators(network):
        for arc in incoming(network, node):
            writer, link = network.operators[arc.producer].node, str(arc)
            name, checkpoint = _writing(network, layout, writer, link)
            keys = query_keys(name, checkpoint, ledgers[writer].fold.batches(link))
            sums = [ledgers[writer].total(key, link) for key in keys]
            read = ledgers[node].total(_reading(network, layout, node, link), link)
            account = LinkAccount(
                link=link,
                writer=writer,
                reader=node,
                delivered=sum(one.delivered for one in sums),
                unfinished=0,
                in_log=0,
                offered=read.offered,
            )
            try:
                if not all(one.known for one in (*sums, read)):
                    silent.append(f"{link}: several queries wrote to lines that retention has removed: not summed up")
                elif (one := _counted(account, layout.link(arc), keys, ledgers[writer])) is not None:
                    found.append(one)
            except FloodwayError as error:
                silent.append(f"{link}: {error.message}")
    return found, silent


def _counted(account: LinkAccount, address: str, keys: Iterable[str], ledger: AuditedLedger) -> LinkAccount | None:
    """The account with what lies in the link's topic or log; None if there is neither."""
    link = account.link
    points = {writer_of(key, link): (key, ledger.query(key)[0]) for key in keys}
    lines = [line for key, _ in points.values() for line in ledger.query(key)[1]]
    written = [line for line in lines if line.at == link and line.reason == Reason.DELIVERED]
    last = {writer: point.last for writer, (_, point) in points.items()}
    if is_topic(address):
        passed = {writer: (point.last, point.next.get(link, {})) for writer, (_, point) in points.items()}
        counts = link_counts(address, points, passed)
        for writer, (key, _) in points.items():
            after = ledger.after.queries.setdefault(key, QueryPoint())
            after.next[link] = counts.after(writer, after.last)
            if ledger.removed:  # what lines that are gone said of a batch is not known
                first = min((line.batch for line in written if line.query == key), default=0)
                counts.batches[writer] = Counter({b: n for b, n in counts.batches[writer].items() if b >= first})
        return kafka_account(account, counts, written, last)
    if not (Path(address) / META).exists():
        return None
    held = {writer: count_log(Path(address), writer, point.next.get(link)) for writer, (_, point) in points.items()}
    batches = {writer: one.batches for writer, one in held.items()}
    length = max((one.length for one in held.values()), default=0)
    return replace(account, in_log=length, unfinished=_unfinished(batches, _said(link, written), last))


def kafka_account(
    account: LinkAccount, counts: LinkCounts, written: Sequence[LedgerLine], last: Mapping[str, int] | None = None
) -> LinkAccount:
    """The account with what the link's topic holds.

    `written` are the writer's lines about it, `last` by writer the batch after which they begin.
    """
    said = _said(account.link, written)
    wrong = [
        f"{account.link}, batch {batch}: the ledger says {mine.get(batch, 0)} tuples were delivered, "
        f"the topic holds {held[batch]}"
        for writer, held in counts.batches.items()
        for mine in (said.get(writer, {}),)
        for batch in sorted(mine.keys() | held.keys())
        # Of a batch whose first records are retired Kafka cannot tell the size; one past the ledger is unfinished.
        if batch <= max(mine, default=-1)
        and (not counts.retired or batch > min(held, default=batch))
        and mine.get(batch, 0) != held[batch]
    ]
    if counts.foreign:
        wrong.append(f"{account.link}: {counts.foreign} record(s) in the topic are not {account.writer}'s")
    return replace(
        account,
        in_log=counts.length,
        unfinished=_unfinished(counts.batches, said, last or {}),
        repeated=counts.repeated,
        wrong=tuple(wrong),
    )


def _said(link: str, written: Sequence[LedgerLine]) -> dict[str, dict[int, int]]:
    """Tuples that each batch delivered to a link, by writer."""
    found: dict[str, dict[int, int]] = {}
    for line in written:
        found.setdefault(writer_of(line.query, link), {})[line.batch] = line.kept
    return found


def _unfinished(
    batches: Mapping[str, Mapping[int, int]], said: Mapping[str, Mapping[int, int]], last: Mapping[str, int]
) -> int:
    """Tuples of batches later than the writer's ledger knows."""
    return sum(
        count
        for writer, held in batches.items()
        for batch, count in held.items()
        if batch > max(said.get(writer, {}), default=last.get(writer, -1))
    )


def _writing(network: Network, layout: NodeLayout, writer: str, link: str) -> tuple[str, Path]:
    """The query that writes a link, and its checkpoint."""
    found = next(f for f in fragments(layout.part(network, writer), writer) if link in f.outputs)
    return found.query, layout.own(writer).checkpoint(found)


def _reading(network: Network, layout: NodeLayout, reader: str, link: str) -> str:
    """The key of the query that reads a link now: one whose checkpoint is gone had read the link for itself."""
    for fragment in fragments(layout.part(network, reader), reader):
        if any(spec.producer == link for spec in fragment.sources):
            return present_key(fragment.query, layout.own(reader).checkpoint(fragment))
    return reader


def _with_operators(network: Network) -> list[str]:
    used = {operator.node for operator in network.operators.values()}
    return [node for node in network.nodes if node in used]
