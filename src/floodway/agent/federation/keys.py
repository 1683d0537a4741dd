"""Who a message is from: one key a pair of members, so that nobody can speak in the name of a third.

    key from A to B = HMAC-SHA256(key of A and B, "A->B")

A and B alone have their key, C can sign as neither to the other. Each direction signs with a key derived from it, so
that what B sent to A, played back to B, is nobody's. Certificates do the same by their commonName.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodway.agent.wire.browsers import is_loopback
from floodway.agent.wire.signing import LEAST_KEY_BYTES, MAKE_KEY, Security, read_secret
from floodway.contracts.federation_file import Federation
from floodway.errors import InputError


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a member proves itself with: `pairs` by partner, else what `shared` holds: one key of all, certificates.

    A key in `shared` without `pairs` is trust in all who have it: any of them can speak in any name.
    """

    name: str
    shared: Security = field(default_factory=Security)
    pairs: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        owners: dict[bytes, str] = {}
        for partner, key in self.pairs.items():
            if len(key) < LEAST_KEY_BYTES:
                raise InputError(f"the key with {partner} is shorter than {LEAST_KEY_BYTES} bytes", hint=MAKE_KEY)
            if owners.setdefault(key, partner) != partner:
                raise InputError(
                    f"{self.name} has the same key with {owners[key]} and with {partner}",
                    hint="Give every pair a key of its own, or they can speak in each other's name",
                )

    def receiving(self) -> Security:
        """How messages to this member are checked."""
        if not self.pairs:
            return self.shared
        keys = {partner: directed(key, partner, self.name) for partner, key in self.pairs.items()}
        return Security(tls=self.shared.tls, senders=keys, token=self.shared.token)

    def sending(self, partner: str) -> Security:
        """How messages to a partner are signed."""
        if not self.pairs:
            return self.shared
        if partner not in self.pairs:
            raise InputError(f"{self.name} has no key with {partner}", hint="Name one in the file's section keys")
        return Security(directed(self.pairs[partner], self.name, partner), self.shared.tls)

    def check_address(self, host: str) -> None:
        """Refuse an address that others can reach where one key is all that tells members apart."""
        if not is_loopback(host) and not self.pairs and self.shared.tls is None and self.shared.key is not None:
            raise InputError(
                f"address {host} can be reached from outside, and all members share one key",
                hint="Name a key for every pair in the file's section keys, or use certificates; "
                "one key for all is for loopback",
            )


def directed(key: bytes, sender: str, receiver: str) -> bytes:
    """The key that only `sender` signs with, and only to `receiver`.

    >>> directed(b"k" * 32, "A", "B") == directed(b"k" * 32, "B", "A")
    False
    """
    return hmac.digest(key, f"{sender}->{receiver}".encode(), "sha256")


def load_pairs(federation: Federation, name: str, folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """The keys that this member has with its partners, from where the file says; other pairs' are not touched."""
    found: dict[str, bytes] = {}
    for pair, source in federation.keys.items():
        if name not in pair:
            continue
        (partner,) = pair - {name}
        if source.env is not None:
            key = environ.get(source.env, "").strip().encode()
            if not key:
                raise InputError(f"{source}, the key of {name} and {partner}, is not set", hint=MAKE_KEY)
        else:
            key = read_secret(f"key of {name} and {partner}: key", folder / (source.file or ""))
        found[partner] = key
    return found
