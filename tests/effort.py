"""How much a test tries: in every run as much as finds a mistake, with `--run-slow` all of it.

Examples and seeds are the same in every run (`fixed` in conftest.py), so more of them find nothing that the last long
run has not found.
"""

from __future__ import annotations

import os

THOROUGH = "FLOODWAY_TESTS_THOROUGH"
"""Set by `--run-slow` and by the profile `explore`, before any test is imported."""
PART, LEAST = 4, 10


def tries(count: int) -> int:
    """`count` examples or trials, or a quarter of them where the run is a short one."""
    return count if os.environ.get(THOROUGH) else min(count, max(LEAST, count // PART))
