"""Links between the ledgers of two nodes, on real logs and ledgers, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.network.file import load_network
from floodway.network.model import Arc, Network
from floodway.spark.audit.nodes import LinkAccount, audit_nodes
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.layout import NodeLayout

LINK = "a1->b1"


@pytest.fixture
def network() -> Network:
    return load_network(Path("examples/networks/figure1.yaml"))


def line(node: str, batch: int, reason: Reason, offered: int, kept: int) -> LedgerLine:
    return LedgerLine(f"{node}.main", batch, LINK, reason, offered, kept, offered - kept)


def write(layout: NodeLayout, batches: dict[int, int]) -> None:
    """Fill the link's log as node A's sink does: a segment a batch, under the batch's tag."""
    log = create_log(layout.shared.link(Arc("a1", "b1")), "value bigint")
    with LogWriter(log.path) as writer:
        for batch, count in batches.items():
            writer.append(pa.table({"value": pa.array(range(count), pa.int64())}), tag=f"A.main:{LINK}:{batch}:0")


def account(network: Network, layout: NodeLayout) -> tuple[LinkAccount, tuple[str, ...]]:
    result = audit_nodes(network, layout)
    (found,) = result.links
    return found, result.differences


def test_what_was_delivered_was_offered_or_waits(network: Network, tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    write(layout, {0: 10, 1: 20})
    Ledger(layout.own("A").store).append(
        [line("A", 0, Reason.DELIVERED, 10, 10), line("A", 1, Reason.DELIVERED, 20, 20)]
    )
    Ledger(layout.own("B").store).append([line("B", 0, Reason.SHEDDER, 10, 4)])
    found, differences = account(network, layout)
    assert differences == ()
    assert (found.delivered, found.in_log, found.offered, found.waiting) == (30, 30, 10, 20)
    assert (found.writer, found.reader) == ("A", "B")


def test_a_batch_that_was_killed_after_its_sink_is_unfinished_and_no_difference(
    network: Network, tmp_path: Path
) -> None:
    layout = NodeLayout(tmp_path)
    write(layout, {0: 10, 1: 20})
    Ledger(layout.own("A").store).append([line("A", 0, Reason.DELIVERED, 10, 10)])
    Ledger(layout.own("B").store).append([line("B", 0, Reason.SHEDDER, 30, 30)])
    found, differences = account(network, layout)
    assert differences == ()
    assert (found.delivered, found.unfinished, found.waiting) == (10, 20, 0)


def test_a_ledger_that_claims_too_much_is_found(network: Network, tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    write(layout, {0: 10})
    Ledger(layout.own("A").store).append([line("A", 0, Reason.DELIVERED, 12, 12)])
    Ledger(layout.own("B").store).append([line("B", 0, Reason.SHEDDER, 11, 11)])
    _, differences = account(network, layout)
    assert any("A's ledger delivered 12" in text for text in differences)
    assert any("B's ledger was offered 11" in text for text in differences)


def test_a_part_knows_the_logs_of_its_links(network: Network, tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    first, second = layout.part(network, "A"), layout.part(network, "B")
    assert first.outputs[LINK].sink == second.streams[LINK].log == str(tmp_path / "links" / "a1--b1")
    assert first.streams["s1"].log == str(tmp_path / "streams" / "s1")
    assert second.outputs["q1"].sink == str(tmp_path / "outputs" / "q1")


def test_a_second_audit_goes_on_with_the_sums_of_the_first(network: Network, tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    write(layout, {0: 10, 1: 20, 2: 30})
    Ledger(layout.own("A").store).append([line("A", batch, Reason.DELIVERED, n, n) for batch, n in ((0, 10), (1, 20))])
    Ledger(layout.own("B").store).append([line("B", 0, Reason.SHEDDER, 10, 4)])
    assert account(network, layout)[1] == ()
    Ledger(layout.own("A").store).append([line("A", 2, Reason.DELIVERED, 30, 30)])
    Ledger(layout.own("B").store).append([line("B", 1, Reason.SHEDDER, 50, 4)])
    for _ in range(2):
        found, differences = account(network, layout)
        assert differences == ()
        assert (found.delivered, found.in_log, found.offered, found.waiting) == (60, 60, 60, 0)
    Ledger(layout.own("A").store).append([line("A", 3, Reason.DELIVERED, 7, 7)])
    for _ in range(2):
        assert any("A's ledger delivered 67" in text for text in account(network, layout)[1])
