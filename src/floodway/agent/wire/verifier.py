"""Which signed requests are taken: those for this very process, of the last half minute, each once.

A process draws a random epoch when it starts and counts its seconds from there by a clock that does not step. A request
names both. So one that was recorded for a process before this one, or on a machine whose clock was set back since, is
worth nothing, whatever any clock says, and nonces need to be remembered only for as long as the window is long.

    taken     epoch = ours, |time − our seconds| <= 30 s, nonce not seen
    unmet     no epoch: the sender does not know it yet; it is told, signed, and asks again
    stale     another epoch or another time: told as well, because the sender may have slept, or we may have restarted
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import isfinite

from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import (
    DIGEST_HEADER,
    EPOCH_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    digest,
    same_signature,
    sign,
)

WINDOW_SECONDS = 30.0
MOST_NONCES = 100_000
_MOST_HEADER = 100


class Verifier:
    """Checks signatures and remembers nonces for as long as their messages would still be fresh.

    `keys` are those of the known senders; `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes],
        *,
        clock: Callable[[], float] = time.monotonic,
        window_seconds: float = WINDOW_SECONDS,
        most_nonces: int = MOST_NONCES,
    ) -> None:
        self.epoch = secrets.token_hex(16)
        self._keys = dict(keys)
        self._clock = clock
        self._started = clock()
        self._window = window_seconds
        self._most = most_nonces
        self._seen: OrderedDict[str, float] = OrderedDict()

    @property
    def seconds(self) -> float:
        """How long this process has been listening."""
        return self._clock() - self._started

    def signer(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """Whose key signed the request, whether or not it is fresh and new."""
        found = [headers.get(name) for name in (TIME_HEADER, NONCE_HEADER, DIGEST_HEADER, SIGNATURE_HEADER)]
        time_text, nonce, body_digest, signature = found
        if time_text is None or nonce is None or body_digest is None or signature is None:
            raise RefusedError("unsigned", "the request is not signed", hint="Give the sender the same key file")
        epoch = headers.get(EPOCH_HEADER, "")
        if max(map(len, (epoch, time_text, nonce, body_digest, signature))) > _MOST_HEADER or not nonce:
            raise RefusedError("bad-signature", "the request's signature is not one")
        for sender, key in self._keys.items():
            if same_signature(sign(key, method, path, epoch, time_text, nonce, body_digest), signature):
                return sender
        raise RefusedError("bad-signature", "the request's signature does not fit", hint="Do both sides have one key?")

    def admit(self, sender: str, headers: Mapping[str, str]) -> None:
        """Take a signed request if it is fresh and new, and remember its nonce."""
        now, epoch = self.seconds, headers.get(EPOCH_HEADER, "")
        about: dict[str, str | float] = {"epoch": self.epoch, "seconds": now}
        if not epoch:
            raise RefusedError("unmet", "say again, with the epoch of this process", details=about)
        try:
            sent = float(headers[TIME_HEADER])
        except ValueError:
            sent = float("nan")
        if epoch != self.epoch or not isfinite(sent) or abs(now - sent) > self._window:
            message = "the request is too old, from the future, or for a process before this one"
            raise RefusedError("stale", message, details=about)
        self._remember(f"{sender}/{headers[NONCE_HEADER]}", now)

    def check_body(self, headers: Mapping[str, str], body: bytes) -> None:
        """Refuse a body that is not the one that was signed."""
        if not same_signature(digest(body), headers[DIGEST_HEADER]):
            raise RefusedError("bad-signature", "the body is not the one that was signed")

    def _remember(self, nonce: str, now: float) -> None:
        if nonce in self._seen:
            raise RefusedError("replayed", "the request was received before")
        # A message may be stamped up to a window ahead, and stays fresh for another one.
        oldest = now - 2 * self._window
        while self._seen and next(iter(self._seen.values())) < oldest:
            self._seen.popitem(last=False)
        if len(self._seen) >= self._most:
            raise RefusedError("busy", f"more than {self._most} signed requests in {2 * self._window:g} s")
        self._seen[nonce] = now
