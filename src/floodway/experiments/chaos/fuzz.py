"""Bad input by the million: everything that reads what others wrote gets mutated examples.

Points run in processes of their own, some thousands each: a crash of one, in C too, is seen, and the chunk that it
happened in can be repeated by its seed. Refusals are counted by reader; one without words is a difference.
"""

from __future__ import annotations

import json
import multiprocessing
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from floodway.errors import FloodwayError
from floodway.experiments.chaos.fuzz_inputs import readers
from floodway.experiments.chaos.mutations import mutated
from floodway.experiments.chaos.result import MOST_DIFFERENCES, FaultResult, Trial

CHUNK = 20_000
MOST_WORDS = 4_000
"""A refusal is a line or some, however long the input is."""


def faults(trial: Trial) -> FaultResult:
    """Chunk after chunk; each is a pure function of the seed and its number."""
    result = FaultResult("fuzz", detail={"refused": {}, "taken": {}})
    trial.folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    for number, first in enumerate(range(0, trial.points, CHUNK)):
        count = min(CHUNK, trial.points - first)
        trial.progress(first / trial.points, f"{first} of {trial.points} inputs")
        report = trial.folder / f"chunk-{number}.json"
        process = context.Process(target=run_chunk, args=(f"{trial.seed}/{number}", count, str(report)))
        process.start()
        process.join()
        if process.exitcode or not report.exists():
            result.differences.append(f"chunk {number} of seed {trial.seed} crashed: exit code {process.exitcode}")
            continue
        found = json.loads(report.read_text(encoding="utf-8"))
        report.unlink()
        result.tried += count
        result.differences += found["differences"]
        for kind in ("refused", "taken"):
            sums = Counter(result.detail[kind])
            sums.update(found[kind])
            result.detail[kind] = dict(sums)
    return result


def run_chunk(seed: str, count: int, report: str) -> None:
    """So many inputs, and what became of them in a file."""
    rng = random.Random(seed)
    refused: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    differences: list[str] = []
    with TemporaryDirectory(prefix="floodway-fuzz-") as folder:
        found = readers(Path(folder))
        names = list(found)
        for name in rng.choices(names, [found[name].weight for name in names], k=count):
            data = mutated(found[name].corpus, rng)
            try:
                found[name].read(data)
            except FloodwayError as error:
                refused[name] += 1
                if not 0 < len(str(error)) <= MOST_WORDS:
                    differences.append(f"{name}: a refusal of {len(str(error))} characters for {data[:80]!r}")
            except (Exception, RecursionError) as error:
                differences.append(f"{name}: {type(error).__name__}: {str(error)[:120]} for {data[:120]!r}")
            else:
                taken[name] += 1
    body = {"refused": refused, "taken": taken, "differences": differences[:MOST_DIFFERENCES]}
    Path(report).write_text(json.dumps(body), encoding="utf-8")
