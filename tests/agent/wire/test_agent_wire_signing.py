"""Keys, signatures, nonces: who is let in, and that keys never show."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import (
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Security,
    TlsFiles,
    Verifier,
    answer_fault,
    load_security,
    sign,
    sign_answer,
    signed_headers,
)
from floodway.errors import InputError

KEY = b"0123456789abcdef0123456789abcdef"
NOW = 1_000_000.0


def reason(
    verifier: Verifier, headers: dict[str, str], *, body: bytes = b"x", path: str = "/v1", now: float = NOW
) -> str:
    try:
        verifier.verify("POST", path, headers, body, now)
    except RefusedError as error:
        return error.reason
    return "taken"


def test_a_signed_request_is_taken_once() -> None:
    verifier = Verifier(KEY, NOW - 100)
    headers = signed_headers(KEY, "post", "/v1", b"x", NOW)
    assert reason(verifier, headers) == "taken"
    assert reason(verifier, headers) == "replayed"
    assert reason(verifier, signed_headers(KEY, "POST", "/v1", b"x", NOW)) == "taken"


def test_whatever_is_changed_breaks_the_signature() -> None:
    verifier = Verifier(KEY, NOW - 100)
    headers = signed_headers(KEY, "POST", "/v1", b"x", NOW)
    assert reason(verifier, headers, body=b"y") == "bad-signature"
    assert reason(verifier, headers, path="/v1?all=1") == "bad-signature"
    assert reason(verifier, {**headers, TIME_HEADER: f"{NOW + 1:.6f}"}) == "bad-signature"
    assert reason(verifier, {**headers, NONCE_HEADER: "0" * 32}) == "bad-signature"
    assert reason(verifier, {**headers, SIGNATURE_HEADER: "é"}) == "bad-signature"
    assert reason(verifier, {**headers, NONCE_HEADER: "0" * 1000}) == "bad-signature"
    assert reason(verifier, signed_headers(KEY[::-1], "POST", "/v1", b"x", NOW)) == "bad-signature"
    # Nothing of that was remembered: the honest message is still new.
    assert reason(verifier, headers) == "taken"


def test_an_answer_counts_for_its_own_request_only() -> None:
    signature = sign_answer(KEY, 200, "nonce", b"x")
    assert answer_fault(KEY, 200, "nonce", b"x", signature) is None
    assert answer_fault(KEY, 200, "nonce", b"x", None) == "unsigned-answer"
    for changed in ((KEY, 201, "nonce", b"x"), (KEY, 200, "other", b"x"), (KEY, 200, "nonce", b"y")):
        assert answer_fault(*changed, signature) == "bad-answer"
    assert answer_fault(KEY[::-1], 200, "nonce", b"x", signature) == "bad-answer"
    assert answer_fault(KEY, 200, "nonce", b"x", "é") == "bad-answer"


def test_a_request_cannot_be_made_of_an_answer() -> None:
    """Whatever is signed as an answer, no method is written in small letters."""
    verifier = Verifier(KEY, NOW - 100)
    headers = {TIME_HEADER: "n", NONCE_HEADER: "n", SIGNATURE_HEADER: sign_answer(KEY, 200, "n", b"x")}
    assert reason(verifier, headers) == "bad-signature"
    assert sign(KEY, "answer", "200", "n", "n", b"x") != sign_answer(KEY, 200, "n", b"x")


@pytest.mark.parametrize("missing", [TIME_HEADER, NONCE_HEADER, SIGNATURE_HEADER])
def test_unsigned(missing: str) -> None:
    headers = signed_headers(KEY, "POST", "/v1", b"x", NOW)
    del headers[missing]
    assert reason(Verifier(KEY, NOW - 100), headers) == "unsigned"


@pytest.mark.parametrize("sent", [NOW - 31, NOW + 31, NOW - 11])
def test_stale_from_the_future_and_from_before_the_start(sent: float) -> None:
    verifier = Verifier(KEY, NOW - 10)
    assert reason(verifier, signed_headers(KEY, "POST", "/v1", b"x", sent)) == "stale"


@pytest.mark.parametrize("text", ["nan", "inf", "yesterday", ""])
def test_a_time_that_is_none_is_stale_though_signed(text: str) -> None:
    headers = {TIME_HEADER: text, NONCE_HEADER: "n", SIGNATURE_HEADER: sign(KEY, "POST", "/v1", text, "n", b"x")}
    assert reason(Verifier(KEY, NOW - 10), headers) == "stale"


def test_nonces_are_forgotten_when_their_messages_are_stale_anyway() -> None:
    verifier = Verifier(KEY, 0.0, window_seconds=10, most_nonces=3)
    first = signed_headers(KEY, "POST", "/v1", b"x", NOW + 10)
    assert reason(verifier, first) == "taken"
    assert [reason(verifier, signed_headers(KEY, "POST", "/v1", b"x", NOW)) for _ in range(3)] == ["taken"] * 2 + [
        "busy"
    ]
    assert reason(verifier, first, now=NOW + 20) == "replayed"
    assert reason(verifier, first, now=NOW + 20.1) == "stale"
    assert reason(verifier, signed_headers(KEY, "POST", "/v1", b"x", NOW + 21), now=NOW + 21) == "taken"


def test_keys_come_from_a_file_before_the_environment_and_never_show(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    environ = {"FLOODWAY_KEY": "another key of the environment"}
    found = load_security(file, None, None, None, environ)
    assert found.key == KEY and found.authenticated
    assert KEY.decode() not in repr(found) + str(found) + f"{found}"
    assert load_security(None, None, None, None, environ).key == environ["FLOODWAY_KEY"].encode()
    assert load_security(None, None, None, None, {"FLOODWAY_KEY_FILE": str(file)}).key == KEY
    assert not load_security(None, None, None, None, {}).authenticated


def test_what_is_wrong_with_keys_and_files_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shorter than 16 bytes"):
        Security(b"short")
    with pytest.raises(InputError, match="cannot be read"):
        load_security(tmp_path / "nowhere", None, None, None, {})
    with pytest.raises(InputError, match="missing: private key, authority"):
        load_security(None, tmp_path / "cert", None, None, {})
    with pytest.raises(InputError, match="PEM"):
        TlsFiles(tmp_path / "a", tmp_path / "b", tmp_path / "c").context(server=True)
