"""A store through `pyarrow.fs`, for processes without a JVM: S3, Google Cloud Storage, Azure Data Lake.

Credentials are those of each vendor's own chain (environment, profile, machine): `AWS_ACCESS_KEY_ID`, `AWS_PROFILE`,
`AWS_ENDPOINT_URL` …; `GOOGLE_APPLICATION_CREDENTIALS`; `AZURE_…`. Objects appear whole, when their stream is closed.
pyarrow offers no conditional put, so `create` goes by claims (`store.create_by_claim`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from floodway.errors import InputError
from floodway.job.store.store import OBJECT_SCHEMES, InTime, StoreError, always, create_by_claim, prefixed, scheme_of

CONNECT_SECONDS, REQUEST_SECONDS = 5, 20
"""A place that is not there shall be told in seconds, not after the client's default of minutes."""

_AWS = re.compile(r"AWS Error \w+ during \w+ operation: .*")


class ArrowStore:
    """Objects below one path of a `pyarrow.fs` file system."""

    def __init__(self, uri: str, files: Any, path: str) -> None:
        self._uri = uri
        self._files = files
        self._path = path

    @property
    def uri(self) -> str:
        return self._uri

    def read(self, name: str) -> bytes | None:
        with self._worded(name, "read"):
            try:
                with self._files.open_input_stream(self._at(name)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        """See `Store`; object stores know nothing but durable."""
        if not in_time():
            return False
        with self._worded(name, "written"), self._files.open_output_stream(self._at(name)) as stream:
            stream.write(data)
        return True

    def create(self, name: str, data: bytes) -> bool:
        return create_by_claim(self, name, data)

    def names(self, under: str = "") -> list[str]:
        return sorted(prefixed(under, one.base_name) for one in self._listed(under) if one.is_file)

    def folders(self, under: str = "") -> list[str]:
        return sorted(prefixed(under, one.base_name) for one in self._listed(under) if not one.is_file)

    def remove(self, name: str) -> None:
        with self._worded(name, "removed"):
            try:
                self._files.delete_file(self._at(name))
            except FileNotFoundError:
                return

    def modified(self, name: str) -> float | None:
        with self._worded(name, "read"):
            (info,) = self._files.get_file_info([self._at(name)])
            return float(info.mtime_ns) / 1e9 if info.is_file else None

    def _listed(self, under: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        with self._worded(under, "listed"):
            return list(self._files.get_file_info(FileSelector(self._at(under), allow_not_found=True)))

    def _at(self, name: str) -> str:
        return prefixed(self._path, name) if name else self._path

    @contextmanager
    def _worded(self, name: str, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self._uri}/{name} cannot be {done}",
                why=_said(error),
                hint="Check the address, the credentials of this process and their rights there",
            ) from error


def open_arrow(uri: str) -> ArrowStore:
    """The store at an S3, Google or Azure address; nothing is asked of it yet."""
    from pyarrow import fs

    scheme, parts = scheme_of(uri), urlsplit(uri)
    if scheme not in OBJECT_SCHEMES:
        raise InputError(
            f"state location {uri!r} has the scheme {scheme!r}, which is not known here",
            hint=f"Use a folder, or one of hdfs:, {', '.join(f'{known}:' for known in OBJECT_SCHEMES)}",
        )
    try:
        if scheme in ("s3", "s3a"):
            files = fs.S3FileSystem(
                endpoint_override=os.environ.get("AWS_ENDPOINT_URL"),
                connect_timeout=CONNECT_SECONDS,
                request_timeout=REQUEST_SECONDS,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
                allow_delayed_open=True,  # a small object is one request
            )
            return ArrowStore(uri, files, f"{parts.netloc}{parts.path}")
        files, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise StoreError(f"{uri} cannot be opened", why=_said(error), hint="Check the address") from error
    return ArrowStore(uri, files, path)


def _said(error: Exception) -> str:
    """What a library says of an error, in one line of at most 300 characters."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    found = _AWS.search(line)
    return (found[0] if found else line)[:300].rstrip(". ")
