"""The package as users get it: wheel and sdist are built, and the wheel runs from an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import floodway
from floodway.spark.session.java import find_java
from tests.docs.pages import blocks_of

ROOT = Path(__file__).resolve().parents[2]
FIGURE1 = ROOT / "examples" / "networks" / "figure1.yaml"
DATA = (
    *("dashboard/static/index.html", "dashboard/static/page.css", "dashboard/static/page.js"),
    *("dashboard/static/charts.js", "dashboard/static/sign.js", "dashboard/static/icon.svg"),
)
"""Files that are no Python and without which a command fails."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built with the locked hatchling; nothing is fetched."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT)
    return out


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_and_sdist_hold_what_is_needed_and_nothing_else(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in DATA if f"floodway/{name}" not in names] == []
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert [name for name in names if not name.startswith(("floodway/", "floodway-"))] == []
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "examples/networks/shop.yaml"} <= inside
    assert [name for name in inside if name.startswith((".venv", ".cache", "runs/", "demo-out"))] == []
    assert sdist.stat().st_size < 10_000_000


def test_the_wheel_runs_from_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    venv.create(home, with_pip=False)  # this environment's pip can install into another
    python = home / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run([*pip, "install", "--no-deps", "--no-index", "-q", str(wheel)], cwd=tmp_path)
    # The libraries are those of this environment (850 MB would be fetched otherwise); Floodway itself is the wheel's.
    libraries = sysconfig.get_paths()["purelib"]
    site = Path(
        run([str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], cwd=tmp_path).strip()
    )
    (site / "zz-libraries.pth").write_text(f"import sys; sys.path.append({libraries!r})\n", encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    where = run([str(python), "-c", "import floodway; print(floodway.__file__)"], cwd=tmp_path, env=env)
    assert Path(where.strip()).is_relative_to(site)
    command = str(home / "bin" / "floodway")
    assert "Usage" in run([command, "--help"], cwd=tmp_path, env=env)
    planned = run([command, "plan", str(FIGURE1), "--rates", "s1=1,s2=1", "--json"], cwd=tmp_path, env=env)
    assert '"score": 0.6' in planned
    env["FLOODWAY_STATE"] = str(tmp_path / "state")
    served = subprocess.run(
        [command, "dashboard", "--listen", "127.0.0.1:0", "--seconds", "0.1"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert served.returncode == 0, served.stderr
    assert "page: http://127.0.0.1:" in served.stderr


def test_package_and_changelog_have_one_version(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name == f"floodway-{floodway.__version__}-py3-none-any.whl"
    assert sdist.name == f"floodway-{floodway.__version__}.tar.gz"
    releases = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert releases[0] == floodway.__version__
    metadata = zipfile.ZipFile(wheel).read(f"floodway-{floodway.__version__}.dist-info/METADATA").decode()
    needed = {re.split(r"[><=;\s]", line)[1] for line in re.findall(r"^Requires-Dist.*(?<!')$", metadata, re.MULTILINE)}
    assert needed == {"numpy", "pyarrow", "pydantic", "pyyaml", "rich", "typer"}  # all else comes with an extra


@pytest.mark.slow  # fetches and installs 500 MB
@pytest.mark.spark
def test_the_wheel_runs_the_first_example_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    venv.create(home, with_pip=False)
    (wheel,) = built.glob("*.whl")
    python = str(home / "bin" / "python")
    run([sys.executable, "-m", "pip", "--python", python, "install", "-q", f"{wheel}[spark]"], cwd=tmp_path)
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    # Nothing of this environment is there: what only the checks or an extra need cannot be imported.
    lent = "import importlib.util as u; print([n for n in ('pytest', 'scipy', 'highspy', 'pandas') if u.find_spec(n)])"
    assert run([python, "-c", lent], cwd=tmp_path, env=env).strip() == "[]"
    # Java is the one thing that pip does not bring; here it is the one of this project.
    env |= {"JAVA_HOME": str(find_java()), "FLOODWAY_STATE": str(tmp_path / "state")}
    (example,) = [block.body for block in blocks_of(ROOT / "docs" / "first-example.md") if block.language == "python"]
    shorter, times = re.subn(r"awaitTermination\(\d+\)", "awaitTermination(60)", example)
    assert times == 1
    (tmp_path / "first.py").write_text(shorter, encoding="utf-8")
    assert "Batch: 1" in run([python, "first.py"], cwd=tmp_path, env=env)
    reported = json.loads(run([str(home / "bin" / "floodway"), "report", "first", "--json"], cwd=tmp_path, env=env))
    totals = reported["totals"]
    assert totals["offered"] == totals["kept"] + sum(totals["dropped"].values()) > 0
