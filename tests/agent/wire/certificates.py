"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from floodway.agent.wire.signing import TlsFiles
from tests.patience import PATIENCE_SECONDS


def make_authority(folder: Path, name: str = "ca") -> tuple[Path, Path]:
    """An authority's certificate and private key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    extra = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", "-x509", *_fresh_key(key), "-out", cert, "-days", "2", "-subj", f"/CN={name}", *extra)
    return cert, key


def make_files(folder: Path, name: str, authority: tuple[Path, Path], *, subject: str | None = None) -> TlsFiles:
    """A certificate for 127.0.0.1 that the authority has signed, with its private key; `subject` is /CN=`name`."""
    cert, key, request = folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.csr"
    names = folder / f"{name}.ext"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    _openssl("req", *_fresh_key(key), "-out", request, "-subj", subject or f"/CN={name}")
    ca, ca_key = authority
    signing: list[str | Path] = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", names]
    _openssl("x509", "-req", "-in", request, *signing, "-out", cert, "-days", "2")
    return TlsFiles(cert, key, ca)


def _fresh_key(path: Path) -> list[str | Path]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]


def _openssl(*arguments: str | Path) -> None:
    command = shutil.which("openssl")
    assert command is not None, "the tests of TLS need the openssl command: install it"
    subprocess.run([command, *map(str, arguments)], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
