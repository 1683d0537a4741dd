"""Do the ledgers of all nodes agree, end to end? What one delivered to a link is what the other was offered, or waits.

For every link between two nodes, in tuples:

    delivered by the writer's ledger = length of the link's log = offered by the reader's ledger + still waiting

A writer that was killed in a batch may have filled the log and not the ledger: the restarted batch finds its tuples
there and accounts for them. Until then they are told as `unfinished`, and are no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from floodway.network.model import Network
from floodway.network.part import incoming
from floodway.spark.audit import Audit, audit, tuples_by_batch
from floodway.spark.fragments import fragments
from floodway.spark.ledger import Ledger, LedgerLine, Reason
from floodway.spark.log import LogReader
from floodway.spark.log.meta import META
from floodway.spark.node_layout import NodeLayout


@dataclass(frozen=True, slots=True)
class LinkAccount:
    """One link's tuples: what its writer says it delivered, what its log holds, what its reader says it was offered.

    `unfinished` are those in the log of a batch that the writer's ledger does not hold yet.
    """

    link: str
    writer: str
    reader: str
    delivered: int
    unfinished: int
    in_log: int
    offered: int

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
        }

    def differences(self) -> list[str]:
        """What does not agree, as sentences."""
        found = []
        if self.delivered + self.unfinished != self.in_log:
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

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What could not be checked from here, by node."""
        return tuple(f"{node}: {note}" for node, one in self.nodes.items() for note in one.unchecked)


def audit_nodes(network: Network, layout: NodeLayout) -> NodesAudit:
    """Reconcile the ledger of every node, then the links between them."""
    ran = [node for node in _with_operators(network) if layout.own(node).root.is_dir()]
    audits = {node: audit(layout.part(network, node), layout.own(node), (node,)) for node in ran}
    lines = {node: Ledger(layout.own(node).ledger).read() for node in ran}
    links = tuple(link_accounts(network, layout, lines))
    differences = [f"{node}: {text}" for node, one in audits.items() for text in one.differences]
    differences += [text for account in links for text in account.differences()]
    return NodesAudit(audits, links, tuple(differences))


def link_accounts(network: Network, layout: NodeLayout, lines: dict[str, list[LedgerLine]]) -> list[LinkAccount]:
    """The account of every link whose log is embedded and there."""
    found = []
    for node in _with_operators(network):
        for arc in incoming(network, node):
            log = layout.shared.link(arc)
            if not (log / META).exists():
                continue
            writer = network.operators[arc.producer].node
            written = [ln for ln in lines.get(writer, []) if ln.at == str(arc) and ln.reason == Reason.DELIVERED]
            found.append(
                LinkAccount(
                    link=str(arc),
                    writer=writer,
                    reader=node,
                    delivered=sum(line.kept for line in written),
                    unfinished=_unfinished(layout.part(network, writer), writer, log, str(arc), written),
                    in_log=sum(LogReader(log).end_positions().values()),
                    offered=sum(
                        line.offered
                        for line in lines.get(node, [])
                        if line.at == str(arc) and line.reason == Reason.SHEDDER
                    ),
                )
            )
    return found


def _unfinished(part: Network, writer: str, log: Path, link: str, written: Sequence[LedgerLine]) -> int:
    """Tuples in the log under the tag of a batch later than the writer's ledger knows."""
    query = next(f"{writer}.{f.name}" for f in fragments(part, writer) if link in f.outputs)
    found, _ = tuples_by_batch(log, query)
    last = max((line.batch for line in written), default=-1)
    return sum(count for batch, count in found.items() if batch > last)


def _with_operators(network: Network) -> list[str]:
    used = {operator.node for operator in network.operators.values()}
    return [node for node in network.nodes if node in used]
