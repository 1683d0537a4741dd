"""A store through Hadoop's file systems in a JVM: HDFS, S3, Azure, Google, with Spark's own settings and credentials.

HDFS and its like: an object is written beside its place and renamed, which is atomic, and without `OVERWRITE` fails
where something is. S3 has no rename; there an object appears when its stream is closed, and `create` is a conditional
put (`If-None-Match`) where the client offers it (Hadoop 3.4.2 and later), else goes by claims
(`job/store/store.py`). Google's store: as S3 without the conditional put.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from floodway.errors import InputError
from floodway.job.store.store import InTime, StoreError, always, create_by_claim, prefixed, scheme_of

_CLASS = re.compile(r"(?:[a-z0-9]+\.)+[A-Z]\w*: ")
OBJECT_STORES = ("s3a", "s3", "s3n", "gs")
CONDITIONAL = "fs.option.create.conditional.overwrite"
ENDINGS = (".json", ".jsonl")
"""What ends so is an object: asking Java for each would double the time of a listing."""
IMPATIENT = {
    # A place that is not there shall be told in seconds: the defaults retry for minutes.
    "ipc.client.connect.max.retries": "3",
    "ipc.client.connect.max.retries.on.timeouts": "2",
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "20s",
}
"""For this store's own instance of the file system; the job's stay as they are."""


class HadoopStore:
    """Objects below one address; `jvm` is py4j's view of a JVM with Hadoop's classes, `conf` a Hadoop configuration."""

    def __init__(self, uri: str, jvm: Any, conf: Any) -> None:
        self._uri = uri
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop
        own = self._hadoop.conf.Configuration(conf)
        for key, value in IMPATIENT.items():
            own.set(key, value)
        with self._worded("", "opened"):
            self._base = self._hadoop.fs.Path(uri)
            self._files = self._hadoop.fs.FileSystem.newInstance(self._base.toUri(), own)
            self._renames = scheme_of(uri) not in OBJECT_STORES
            if self._renames:
                self._context = self._hadoop.fs.FileContext.getFileContext(self._base.toUri(), own)
            self._conditional = not self._renames and self._files.hasPathCapability(self._base, CONDITIONAL)

    @property
    def uri(self) -> str:
        return self._uri

    def read(self, name: str) -> bytes | None:
        with self._worded(name, "read"):
            try:
                stream = self._files.open(self._at(name))
            except Py4JJavaError as error:
                if _is(error, "FileNotFoundException"):
                    return None
                raise
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        path = self._at(name)
        with self._worded(name, "written"):
            if self._renames:
                return self._renamed(path, data, self._hadoop.fs.Options.Rename.OVERWRITE, in_time)
            if not in_time():
                return False
            self._put(self._files.createFile(path).overwrite(True), data)
        return True

    def create(self, name: str, data: bytes) -> bool:
        path = self._at(name)
        if not self._renames and not self._conditional:
            return create_by_claim(self, name, data)
        with self._worded(name, "written"):
            try:
                if self._renames:
                    self._renamed(path, data, self._hadoop.fs.Options.Rename.NONE)
                else:
                    builder = self._files.createFile(path).overwrite(False)
                    self._put(builder.must(CONDITIONAL, True), data)
            except Py4JJavaError as error:
                if _is(error, "FileAlreadyExistsException", "RemoteFileChangedException"):
                    return False
                raise
        return True

    def names(self, under: str = "") -> list[str]:
        return sorted(name for name, one in self._listed(under) if name.endswith(ENDINGS) or one.isFile())

    def folders(self, under: str = "") -> list[str]:
        return sorted(name for name, one in self._listed(under) if one.isDirectory())

    def remove(self, name: str) -> None:
        with self._worded(name, "removed"):
            self._files.delete(self._at(name), False)

    def modified(self, name: str) -> float | None:
        with self._worded(name, "read"):
            try:
                return float(self._files.getFileStatus(self._at(name)).getModificationTime()) / 1e3
            except Py4JJavaError as error:
                if _is(error, "FileNotFoundException"):
                    return None
                raise

    def _renamed(self, path: Any, data: bytes, how: Any, in_time: InTime = always) -> bool:
        draft = self._hadoop.fs.Path(path.getParent(), f".{path.getName()}.{token_hex(8)}")
        try:
            self._put(self._files.createFile(draft).overwrite(False).recursive(), data)
            options = self._jvm.java.lang.reflect.Array.newInstance(how.getClass(), 1)
            options[0] = how
            if not in_time():
                self._files.delete(draft, False)
                return False
            self._context.rename(draft, path, options)
        except Py4JJavaError:
            self._files.delete(draft, False)
            raise
        return True

    def _put(self, builder: Any, data: bytes) -> None:
        stream = builder.opt("fs.s3a.create.performance", True).build()
        stream.write(data)
        if self._renames:
            stream.hsync()
        stream.close()

    def _listed(self, under: str) -> list[tuple[str, Any]]:
        """Names and statuses of what is in a folder."""
        with self._worded(under, "listed"):
            try:
                statuses = self._files.listStatus(self._at(under))
            except Py4JJavaError as error:
                if _is(error, "FileNotFoundException"):
                    return []
                raise
            found = [(one.getPath().getName(), one) for one in statuses]
        return [(prefixed(under, name), one) for name, one in found if not name.startswith(".")]

    def _at(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._base, name) if name else self._base

    @contextmanager
    def _worded(self, name: str, done: str) -> Iterator[None]:
        """Java's errors as one sentence."""
        try:
            yield
        except Py4JJavaError as error:
            if _is(error, "UnsupportedFileSystemException"):
                raise InputError(
                    f"state location {self._uri!r} has the scheme {scheme_of(self._uri)!r}, which Spark does not know",
                    hint="Use hdfs:, s3a:, abfss: or gs:, and give Spark the connector of that store",
                ) from None
            why = _said(error)
            if _is(error, "ClassNotFoundException"):
                raise StoreError(
                    f"Spark has no connector for {self._uri}",
                    why=why,
                    hint="Give it one: for S3 --packages org.apache.hadoop:hadoop-aws:VERSION, as Spark's own Hadoop",
                ) from None
            raise self._unreachable(name, done, why) from None
        except PySparkException as error:  # what Spark makes of some of Java's errors in a session
            raise self._unreachable(name, done, _shortened(str(error))) from None

    def _unreachable(self, name: str, done: str, why: str) -> StoreError:
        return StoreError(
            f"{prefixed(self._uri, name) if name else self._uri} cannot be {done}",
            why=why,
            hint="Check the address, Spark's credentials for it (spark.hadoop.fs.*) and their rights there",
        )


def _is(error: Py4JJavaError, *names: str) -> bool:
    """Whether an error, or what caused it, is of one of these classes."""
    cause = error.java_exception
    while cause is not None:
        if cause.getClass().getSimpleName() in names:
            return True
        cause = cause.getCause()
    return False


def _said(error: Py4JJavaError) -> str:
    return _shortened(str(error.java_exception.toString()))


def _shortened(text: str) -> str:
    """What Java says of an error, in one line of at most 300 characters, without the names of its classes.

    >>> _shortened("java.net.ConnectException: x: a.b.SdkClientException: no route")
    'x: no route'
    """
    line = (text.strip().splitlines() or [""])[0]
    return _CLASS.sub("", line)[:300].rstrip(". ")
