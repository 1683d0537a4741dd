"""Where the queries of a shed have their checkpoints: `checkpoints.json` in the shed's folder, for `floodway audit`
and for a restart, which must know which batch is repeated.

    {"6f0c…": "/data/checkpoints/clicks"}          query id, as in the ledger: folder

A shed learns its query's name from Spark's events, and its checkpoint from the query itself when it starts. Whether it
is in a query at all shows in the query's first progress: until then all that start are noted.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from floodway.job.shed_state import ShedFiles
from floodway.job.state_files import write_atomically

CHECKPOINTS = "checkpoints.json"
MOST = 50
"""Checkpoints kept: a job that is started without one has a new one every time."""


def checkpoint_of(spark: SparkSession, query: str) -> str | None:
    """The checkpoint of a running query of this Spark application; None where Spark does not say."""
    found: Any = spark.streams.get(query)
    if found is None:
        return None
    address = urlparse(str(found._jsq.streamingQuery().resolvedCheckpointRoot()))
    return unquote(address.path) if address.scheme in ("", "file") else address.geturl()


def note_checkpoint(files: ShedFiles, query: str, checkpoint: str | None) -> None:
    """Keep where a query of this shed has its checkpoint; None: it is no query of this shed."""
    known = noted_checkpoints(files)
    if known.get(query) != checkpoint:
        known.pop(query, None)
        kept = [*known.items(), *([] if checkpoint is None else [(query, checkpoint)])]
        write_atomically(files.folder / CHECKPOINTS, json.dumps(dict(kept[-MOST:])))


def noted_checkpoints(files: ShedFiles) -> dict[str, str]:
    """Where the queries of a shed have their checkpoints, as far as noted; by query id."""
    try:
        body = json.loads((files.folder / CHECKPOINTS).read_bytes())
        return {str(query): str(path) for query, path in body.items()}
    except (OSError, ValueError, AttributeError):
        return {}
