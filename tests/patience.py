"""How long a test waits for a state before it fails: a bound for what is broken, not a speed that is expected."""

from __future__ import annotations

PATIENCE_SECONDS = 240.0
