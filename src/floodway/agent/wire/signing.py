"""Who may talk to an agent: a key that signs every request, shared by all or one a sender, or certificates.

    request = HMAC-SHA256(key, method ␤ path ␤ epoch ␤ time ␤ nonce ␤ digest)        digest = SHA-256(body)
    answer  = HMAC-SHA256(key, "answer" ␤ status ␤ nonce of the request ␤ SHA-256(body))

The epoch is a number that the receiver drew when it started, the time its own seconds since then: no clock of the
sender counts. Who does not know them yet is told in the signed answer that refuses its first request, and asks again.
The digest travels in a header, so a signature is checked before any of the body is read. The receiver takes a message
once (nonces are remembered) and within a window (`Verifier`). Who asked takes no answer but one to this very
request. Keys come from files or the environment and are hidden from every `repr`. A signature hides nothing: over
networks that others can read, use mutual TLS.

Which signed requests are taken: those for this very process, of the last half minute, each once.

A process draws a random epoch when it starts and counts its seconds from there by a clock that does not step. A request
names both. So one that was recorded for a process before this one, or on a machine whose clock was set back since, is
worth nothing, whatever any clock says, and nonces need to be remembered only for as long as the window is long.

    taken     epoch = ours, |time − our seconds| <= 30 s, nonce not seen
    unmet     no epoch: the sender does not know it yet; it is told, signed, and asks again
    stale     another epoch or another time: told as well, because the sender may have slept, or we may have restarted
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import ssl
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from floodway.agent.wire.refusals import RefusedError
from floodway.errors import InputError

LEAST_KEY_BYTES = 16
EPOCH_HEADER = "floodway-epoch"
TIME_HEADER = "floodway-time"
NONCE_HEADER = "floodway-nonce"
DIGEST_HEADER = "floodway-digest"
SIGNATURE_HEADER = "floodway-signature"
TOKEN_HEADER = "authorization"
READ_PATHS = ("/metrics", "/v1/status", "/v1/node", "/v1/network")
"""What a read token opens, for GET alone: figures, and nothing that acts."""
MAKE_KEY = "Make one with: python -c 'import secrets; print(secrets.token_hex(32))' > key && chmod 600 key"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate and private key of this side, and the authority that signs the other side's (all PEM)."""

    cert: Path
    private_key: Path
    ca: Path

    def context(self, *, server: bool) -> ssl.SSLContext:
        """TLS 1.2 or later, both sides with certificates of the same authority."""
        purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
        read_secret("private key", self.private_key)
        try:
            context = ssl.create_default_context(purpose, cafile=str(self.ca))
            context.load_cert_chain(str(self.cert), str(self.private_key))
        except (OSError, ssl.SSLError) as error:
            hint = "Give PEM files: the certificate, its private key, and the authority's certificate"
            raise InputError(f"cannot use {self.cert}, {self.private_key} and {self.ca}: {error}", hint=hint) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class Security:
    """How messages are authenticated: not at all (loopback only), by a key, by certificates, or by both.

    `senders` has a key for each sender: who receives then knows who signed. With `key` alone all are one. Who has the
    `token` may read what `READ_PATHS` names without signing, as Prometheus must, and do nothing else.
    """

    key: bytes | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    senders: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    token: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < LEAST_KEY_BYTES:
            raise InputError(f"the read token is shorter than {LEAST_KEY_BYTES} bytes", hint=MAKE_KEY)
        if self.token is not None and self.token in (self.key, *self.senders.values()):
            raise InputError("the read token is the key", hint="Make another: who reads must not be able to sign")
        for key in (*(() if self.key is None else (self.key,)), *self.senders.values()):
            if len(key) < LEAST_KEY_BYTES:
                raise InputError(f"the key is shorter than {LEAST_KEY_BYTES} bytes", hint=MAKE_KEY)

    @property
    def authenticated(self) -> bool:
        """Whether a stranger's message would be refused."""
        return self.key is not None or self.tls is not None or bool(self.senders)

    def known_keys(self) -> dict[str, bytes]:
        """The keys that requests may be signed with, by sender; a key that all share is nobody's: ''."""
        shared = {} if self.key is None or self.senders else {"": self.key}
        return {**shared, **self.senders}


def load_security(
    key_file: Path | None,
    cert: Path | None,
    private_key: Path | None,
    ca: Path | None,
    environ: Mapping[str, str],
    token_file: Path | None = None,
) -> Security:
    """Security from files, else from FLOODWAY_KEY, FLOODWAY_KEY_FILE, FLOODWAY_CERT, FLOODWAY_PRIVATE_KEY, FLOODWAY_CA.

    The token from its file, else from FLOODWAY_READ_TOKEN or FLOODWAY_READ_TOKEN_FILE.

    >>> load_security(None, None, None, None, {"FLOODWAY_KEY": "0123456789abcdef"})
    Security(tls=None)
    """
    key_file = key_file or _path(environ, "FLOODWAY_KEY_FILE")
    given = (
        cert or _path(environ, "FLOODWAY_CERT"),
        private_key or _path(environ, "FLOODWAY_PRIVATE_KEY"),
        ca or _path(environ, "FLOODWAY_CA"),
    )
    if any(given) and not all(given):
        names = ("certificate", "private key", "authority")
        missing = ", ".join(name for name, path in zip(names, given, strict=True) if path is None)
        raise InputError(f"mutual TLS needs three files; missing: {missing}", hint="Give all three, or none")
    tls = TlsFiles(*(path for path in given if path is not None)) if all(given) else None
    key = _secret("key", key_file, "FLOODWAY_KEY", environ)
    token_file = token_file or _path(environ, "FLOODWAY_READ_TOKEN_FILE")
    return Security(key, tls, token=_secret("read token", token_file, "FLOODWAY_READ_TOKEN", environ))


def digest(body: bytes) -> str:
    """What a signature covers of a body."""
    return hashlib.sha256(body).hexdigest()


def sign(key: bytes, method: str, path: str, epoch: str, time_text: str, nonce: str, body_digest: str) -> str:
    """The signature of a request, in hexadecimal digits; `path` is with its query."""
    text = "\n".join((method.upper(), path, epoch, time_text, nonce, body_digest))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def signed_headers(
    key: bytes, method: str, path: str, body: bytes, epoch: str = "", seconds: float = 0.0
) -> dict[str, str]:
    """The headers of a signed request with a fresh nonce.

    `epoch` and `seconds` are the receiver's, as it has told them; an empty epoch asks for them.
    """
    time_text, nonce, covered = f"{seconds:.6f}", secrets.token_hex(16), digest(body)
    return {
        EPOCH_HEADER: epoch,
        TIME_HEADER: time_text,
        NONCE_HEADER: nonce,
        DIGEST_HEADER: covered,
        SIGNATURE_HEADER: sign(key, method, path, epoch, time_text, nonce, covered),
    }


def sign_answer(key: bytes, status: int, nonce: str, body: bytes) -> str:
    """The signature of an answer to the request with this nonce; no request has the method `answer`, in small letters.

    >>> sign_answer(b"k" * 16, 200, "n", b"{}") != sign_answer(b"k" * 16, 404, "n", b"{}")
    True
    """
    text = "\n".join(("answer", str(status), nonce, digest(body)))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def same_signature(expected: str, found: str) -> bool:
    """Whether two signatures are equal, in a time that does not tell where they differ."""
    # As bytes: compare_digest refuses text that is not ASCII.
    return hmac.compare_digest(expected.encode(), found.encode("utf-8", "replace"))


def answer_fault(key: bytes, status: int, nonce: str, body: bytes, signature: str | None) -> str | None:
    """Why an answer is not taken: `unsigned-answer` or `bad-answer`; None if it was made by one who has the key.

    >>> answer_fault(b"k" * 16, 200, "n", b"{}", sign_answer(b"k" * 16, 200, "n", b"{}"))
    """
    if signature is None:
        return "unsigned-answer"
    return None if same_signature(sign_answer(key, status, nonce, body), signature) else "bad-answer"


def read_secret(what: str, file: Path) -> bytes:
    """The secret in a file; refuses one that every user of the machine can read."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IROTH | stat.S_IWOTH):
                raise InputError(
                    f"{what} file {file} can be read or changed by every user of this machine",
                    hint=f"chmod 600 {file}, and make another {what} if others may have read this one",
                )
            return opened.read().strip()
    except OSError as error:
        raise InputError(f"{what} file {file} cannot be read: {error.strerror}", hint=MAKE_KEY) from error


def _secret(what: str, file: Path | None, name: str, environ: Mapping[str, str]) -> bytes | None:
    return environ.get(name, "").strip().encode() or None if file is None else read_secret(what, file)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


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
