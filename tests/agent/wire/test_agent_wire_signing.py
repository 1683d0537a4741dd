"""Keys, signatures, nonces: who is let in, and that keys never show."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import (
    DIGEST_HEADER,
    EPOCH_HEADER,
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


class Receiver:
    """A verifier on a clock that is set by hand."""

    def __init__(self, *, window_seconds: float = 30.0, most_nonces: int = 100) -> None:
        self.now = 5000.0
        self.verifier = Verifier(
            {"": KEY}, clock=lambda: self.now, window_seconds=window_seconds, most_nonces=most_nonces
        )

    def signed(self, *, key: bytes = KEY, method: str = "POST", later: float = 0.0) -> dict[str, str]:
        """A request stamped by the receiver's clock, as who has met it does."""
        seconds = self.verifier.seconds + later
        return signed_headers(key, method, "/v1", b"x", self.verifier.epoch, seconds)

    def reason(self, headers: dict[str, str], *, body: bytes = b"x", path: str = "/v1") -> str:
        try:
            sender = self.verifier.signer("POST", path, headers)
            self.verifier.admit(sender, headers)
            self.verifier.check_body(headers, body)
        except RefusedError as error:
            return error.reason
        return "taken"


def test_a_signed_request_is_taken_once() -> None:
    receiver = Receiver()
    headers = receiver.signed(method="post")
    assert receiver.reason(headers) == "taken"
    assert receiver.reason(headers) == "replayed"
    assert receiver.reason(receiver.signed()) == "taken"


def test_whatever_is_changed_breaks_the_signature() -> None:
    receiver = Receiver()
    headers = receiver.signed()
    assert receiver.reason(headers, path="/v1?all=1") == "bad-signature"
    changed = {EPOCH_HEADER: "0" * 32, TIME_HEADER: "1.000000", NONCE_HEADER: "0" * 32, DIGEST_HEADER: "0" * 64}
    for name, value in changed.items():
        assert receiver.reason({**headers, name: value}) == "bad-signature"
    assert receiver.reason({**headers, SIGNATURE_HEADER: "é"}) == "bad-signature"
    assert receiver.reason({**headers, NONCE_HEADER: "0" * 1000}) == "bad-signature"
    assert receiver.reason(receiver.signed(key=KEY[::-1])) == "bad-signature"
    # Nothing of that was remembered: the honest message is still new.
    assert receiver.reason(headers) == "taken"
    assert receiver.reason(receiver.signed(), body=b"y") == "bad-signature"


def test_who_has_not_met_the_process_is_told_its_epoch_and_its_time() -> None:
    receiver = Receiver()
    receiver.now += 7.0
    for epoch, wanted in (("", "unmet"), ("0" * 32, "stale")):
        headers = signed_headers(KEY, "POST", "/v1", b"x", epoch, 0.0)
        with pytest.raises(RefusedError) as error:
            receiver.verifier.admit(receiver.verifier.signer("POST", "/v1", headers), headers)
        assert error.value.reason == wanted
        assert error.value.details == {"epoch": receiver.verifier.epoch, "seconds": 7.0}


def test_what_was_signed_for_a_process_is_worth_nothing_to_the_next() -> None:
    """Also where the machine's clock was set back in between: no wall clock is asked."""
    before, after = Receiver(), Receiver()
    recorded = before.signed()
    assert before.reason(recorded) == "taken"
    after.now = before.now
    assert after.reason(recorded) == "stale" and before.verifier.epoch != after.verifier.epoch


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
    signature = sign_answer(KEY, 200, "n", b"x")
    headers = {TIME_HEADER: "n", NONCE_HEADER: "n", DIGEST_HEADER: "n", SIGNATURE_HEADER: signature}
    assert Receiver().reason(headers) == "bad-signature"
    assert sign(KEY, "answer", "200", "n", "n", "n", "x") != signature


@pytest.mark.parametrize("missing", [TIME_HEADER, NONCE_HEADER, DIGEST_HEADER, SIGNATURE_HEADER])
def test_unsigned(missing: str) -> None:
    receiver = Receiver()
    headers = receiver.signed()
    del headers[missing]
    assert receiver.reason(headers) == "unsigned"


@pytest.mark.parametrize("later", [-31.0, 31.0, -86_400.0, 86_400.0])
def test_stale_and_from_the_future(later: float) -> None:
    receiver = Receiver()
    assert receiver.reason(receiver.signed(later=later)) == "stale"


@pytest.mark.parametrize("text", ["nan", "inf", "yesterday", ""])
def test_a_time_that_is_none_is_stale_though_signed(text: str) -> None:
    receiver = Receiver()
    headers = {**receiver.signed(), TIME_HEADER: text}
    signature = sign(KEY, "POST", "/v1", receiver.verifier.epoch, text, headers[NONCE_HEADER], headers[DIGEST_HEADER])
    assert receiver.reason({**headers, SIGNATURE_HEADER: signature}) == "stale"


def test_nonces_are_forgotten_when_their_messages_are_stale_anyway() -> None:
    receiver = Receiver(window_seconds=10, most_nonces=3)
    first = receiver.signed(later=10.0)
    assert receiver.reason(first) == "taken"
    assert [receiver.reason(receiver.signed()) for _ in range(3)] == ["taken"] * 2 + ["busy"]
    receiver.now += 20.0
    assert receiver.reason(first) == "replayed"
    receiver.now += 0.1
    assert receiver.reason(first) == "stale"
    assert receiver.reason(receiver.signed()) == "taken"


def test_keys_come_from_a_file_before_the_environment_and_never_show(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    file.chmod(0o600)
    environ = {"FLOODWAY_KEY": "another key of the environment"}
    found = load_security(file, None, None, None, environ)
    assert found.key == KEY and found.authenticated
    assert KEY.decode() not in repr(found) + str(found) + f"{found}"
    assert load_security(None, None, None, None, environ).key == environ["FLOODWAY_KEY"].encode()
    assert load_security(None, None, None, None, {"FLOODWAY_KEY_FILE": str(file)}).key == KEY
    assert not load_security(None, None, None, None, {}).authenticated


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_secrets_that_everybody_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    for given in ((file, None), (None, file)):
        file.chmod(mode)
        with pytest.raises(InputError, match=f"every user of this machine. chmod 600 {file}"):
            load_security(given[0], None, None, None, {}, given[1])
        file.chmod(0o640)  # a group's, as orchestrators give secrets to processes
        load_security(given[0], None, None, None, {}, given[1])
    file.chmod(mode)
    with pytest.raises(InputError, match="private key file"):
        TlsFiles(tmp_path / "a", file, tmp_path / "c").context(server=True)


def test_what_is_wrong_with_keys_and_files_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shorter than 16 bytes"):
        Security(b"short")
    with pytest.raises(InputError, match="cannot be read"):
        load_security(tmp_path / "nowhere", None, None, None, {})
    with pytest.raises(InputError, match="missing: private key, authority"):
        load_security(None, tmp_path / "cert", None, None, {})
    (tmp_path / "b").touch(0o600)
    with pytest.raises(InputError, match="PEM"):
        TlsFiles(tmp_path / "a", tmp_path / "b", tmp_path / "c").context(server=True)
