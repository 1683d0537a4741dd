"""The commands that a shed's user needs run with the hard dependencies alone: no extra is imported for them."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "floodway.dashboard.job_report",
    "floodway.dashboard.job_report",
    *(f"floodway.cli.{name}" for name in ("top", "set", "report", "audit", "backfill")),
)
PROGRAM = """
import importlib, sys

EXTRAS = {"highspy", "confluent_kafka", "prometheus_client", "starlette", "uvicorn", "matplotlib", "opentelemetry"}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{name} is an extra", name=name)


sys.meta_path.insert(0, Missing())
for module in sys.argv[1:]:
    importlib.import_module(module)
"""


def test_the_commands_of_a_shed_need_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *MODULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
