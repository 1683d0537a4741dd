"""What a log is: `meta.json` with the version, the stream's name, the schema and the number of partitions.

LOG/meta.json
LOG/p0/00000000000000000000-500.arrow     tuples 0 to 499 of partition 0
LOG/p0/writer.lock                        held by the one writer of partition 0
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from floodway.job.store.store import LocalStore, make_folder
from floodway.json_text import load_json
from floodway.spark.log.errors import LogError, MissingLogError, SchemaError
from floodway.spark.log.schema import ARRIVAL, TIMESTAMP, check_columns, parse_schema, schema_text

VERSION = 1
META = "meta.json"
MAX_PARTITIONS = 1 << 15


@dataclass(frozen=True)
class LogMeta:
    """A log's description. `schema` holds the payload columns; segments store `_arrival` after them."""

    path: Path
    stream: str
    schema: pa.Schema
    partitions: int

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The columns of a segment: the payload and the append time of each tuple."""
        return self.schema.append(pa.field(ARRIVAL, TIMESTAMP, nullable=False))

    def partition_path(self, partition: int) -> Path:
        """The folder of one partition; refuses numbers the log does not have."""
        if not 0 <= partition < self.partitions:
            raise LogError(
                f"log {self.path} has no partition {partition}",
                hint=f"Partitions are 0 to {self.partitions - 1}",
            )
        return self.path / f"p{partition}"


def create_log(path: Path | str, schema: pa.Schema | str, *, partitions: int = 1, stream: str | None = None) -> LogMeta:
    """Create a log, or open the one that is there if it has the same schema and partitions.

    `schema` is Arrow's or DDL text. Safe against two processes creating the same log at once: the first `meta.json`
    stays.
    """
    root = Path(path)
    wanted = parse_schema(schema) if isinstance(schema, str) else schema.remove_metadata()
    check_columns(wanted)
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise LogError(f"a log has 1 to {MAX_PARTITIONS} partitions, not {partitions}", hint="Choose another")
    if not (root / META).exists():
        try:
            for partition in range(partitions):
                make_folder(root / f"p{partition}")
        except OSError as error:
            raise LogError(
                f"log {root} cannot be created: {error.strerror or error}", hint="Is the disk full, or read-only?"
            ) from error
        body = {
            "version": VERSION,
            "stream": stream or root.name,
            "schema": schema_text(wanted),
            "partitions": partitions,
        }
        LocalStore(root).create(META, f"{json.dumps(body, indent=2)}\n".encode())
    found = open_log(root)
    if not found.schema.equals(wanted):
        raise SchemaError(
            f"log {root} exists with the schema '{schema_text(found.schema)}', not '{schema_text(wanted)}'",
            hint="Use that schema, or another path",
        )
    if found.partitions != partitions:
        raise LogError(
            f"log {root} exists with {found.partitions} partition(s), not {partitions}",
            hint="Use that number, or another path",
        )
    return found


def open_log(path: Path | str) -> LogMeta:
    """Read the description of an existing log; one clear error if there is none."""
    root = Path(path)
    try:
        text = (root / META).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingLogError(
            f"no log at {root}",
            hint="Check the path, or create it by `floodway feed`",
        ) from None
    except OSError as error:
        raise MissingLogError(f"log {root} cannot be read: {error}", hint="Check its permissions") from None
    try:
        body = load_json(text)
        version, stream, ddl, partitions = (body[key] for key in ("version", "stream", "schema", "partitions"))
        if version != VERSION:
            raise MissingLogError(
                f"log {root} has version {version!r}, not {VERSION}", hint="Use the Floodway that wrote it"
            )
        return LogMeta(root, str(stream), parse_schema(str(ddl)), int(partitions))
    except (ValueError, KeyError, TypeError, SchemaError) as error:
        raise MissingLogError(
            f"{root / META} does not describe a log: {error!r}", hint="Restore the file, or use another path"
        ) from None
