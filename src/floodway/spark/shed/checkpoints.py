"""Where the queries of a shed have their checkpoints: `checkpoints.json` in the shed's folder, for `floodway audit`.

    {"6f0c…": "/data/checkpoints/clicks"}          query id, as in the ledger: folder

A shed learns its query's name from Spark's events, and its checkpoint from the query itself when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
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


def note_checkpoint(files: ShedFiles, query: str, checkpoint: str) -> None:
    """Keep where a query of this shed has its checkpoint."""
    known = {name: str(path) for name, path in noted_checkpoints(files).items()}
    if known.get(query) != checkpoint:
        known.pop(query, None)
        kept = dict([*known.items(), (query, checkpoint)][-MOST:])
        write_atomically(files.folder / CHECKPOINTS, json.dumps(kept))


def noted_checkpoints(files: ShedFiles) -> Mapping[str, Path]:
    """Where the queries of a shed have their checkpoints, as far as noted; by query id."""
    try:
        body = json.loads((files.folder / CHECKPOINTS).read_bytes())
        return {str(query): Path(str(path)) for query, path in body.items()}
    except (OSError, ValueError, AttributeError):
        return {}
