"""Create-if-absent on a store whose client cannot put conditionally: a protocol on top of put and list.

What a store must offer: an object that was put is seen by every later list (S3 since December 2020, Azure, Google).

1. put a claim `NAME.claim/ID`;
2. list the claims, then look for NAME: if it is there, give way; if there is another claim, take the own one back, wait
   a random moment and begin again; else
3. put NAME, then remove the claim.

Two writers cannot both pass step 2: the one that put its claim later would have seen the other's claim, or its object.
A writer that dies in between leaves a claim behind; after `CLAIM_SECONDS`, by the store's clock, it no longer counts.
For that reason a writer that needed half as long to get to step 3 begins again, and a put takes at most the other half.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from secrets import token_hex

from floodway.job.store.store import Store, StoreError

CLAIM_SECONDS = 60.0
ATTEMPTS = 50


def create_by_claim(
    store: Store,
    name: str,
    data: bytes,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Make an object; False, with nothing changed, if it is there. See the module."""
    if store.modified(name) is not None:
        return False
    claims = f"{name}.claim"
    own = f"{claims}/{token_hex(8)}"
    for _ in range(ATTEMPTS):
        began = monotonic()
        store.write(own, b"")
        try:
            alone = _is_alone(store, claims, own)
            if store.modified(name) is not None:
                return False
            if alone and monotonic() - began < CLAIM_SECONDS / 2:
                store.write(name, data)
                return True
        finally:
            store.remove(own)
        sleep(random.uniform(0.05, 0.5))
    raise StoreError(
        f"{store.uri}/{name} cannot be created: other writers claim it again and again",
        hint="See that only one job uses this place for its state",
    )


def _is_alone(store: Store, claims: str, own: str) -> bool:
    """Whether no other claim is alive, judged by when the store itself says that each was put."""
    others = [name for name in store.names(claims) if name != own]
    if not others:
        return True
    now = store.modified(own) or 0.0
    return all(now - at >= CLAIM_SECONDS for at in map(store.modified, others) if at is not None)
