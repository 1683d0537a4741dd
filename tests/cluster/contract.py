"""What every store promises, and the ledger on it: the same checks for all of them."""

from __future__ import annotations

import threading

from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import Store, probe
from tests.job.ledgers import line


def check_store(store: Store) -> None:
    """Objects are written whole, listed, removed; of many creators one wins."""
    probe(store)
    assert store.names() == [] and store.folders() == [] and store.names("none") == []
    assert store.read("none/a.json") is None and store.modified("none/a.json") is None
    store.write("a.json", b"1")
    store.write("deep/b.json", b"2" * 100_000)
    store.write("a.json", b"")
    assert store.read("a.json") == b"" and store.read("deep/b.json") == b"2" * 100_000
    assert store.names() == ["a.json"] and store.folders() == ["deep"] and store.names("deep") == ["deep/b.json"]
    assert (store.modified("deep/b.json") or 0.0) > 1e9
    assert not store.write("deep/b.json", b"late", in_time=lambda: False)
    assert store.read("deep/b.json") == b"2" * 100_000 and store.names("deep") == ["deep/b.json"]
    assert store.write("deep/b.json", b"2", in_time=lambda: True) and store.read("deep/b.json") == b"2"
    store.remove("a.json")
    store.remove("a.json")
    assert store.read("a.json") is None and store.names() == []
    won: list[bytes] = []

    def create(own: bytes) -> None:
        if store.create("race/object", own):
            won.append(own)

    threads = [threading.Thread(target=create, args=(bytes([65 + i]) * 1000,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and store.read("race/object") == won[0]
    assert not store.create("race/object", b"late") and store.read("race/object") == won[0]
    assert store.names("race") == ["race/object"]
    assert store.create("race/another", b"") and store.folders("race") in ([], ["race/.claims"])


def check_ledger(store: Store) -> None:
    """Two writers in turn lose and double nothing, through merges and a restart."""
    first, second = Ledger(store), Ledger(store)
    for batch in range(70):
        writer = first if batch % 3 else second
        assert writer.append([line(batch)]) == 1, batch
        assert writer.append([line(batch)]) == 0, batch
    assert any("000000000000-000000000064" in name for name in store.names("ledger"))
    after = Ledger(store)
    assert after.append([line(69), line(70)]) == 1
    assert [entry.batch for entry in after.read()] == list(range(71))
    fold = after.fold()
    assert fold.total.offered["clicks"] == 710 and fold.differences() == []
