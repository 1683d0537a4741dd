"""Screenshots of the live page for the README, into docs/pictures: `python -m scripts.make_screenshots [--url URL]`.

Without an address the demo network is run on real Spark for a minute and a half and photographed while it sheds. The
pictures are of one run on one machine: no test compares their pixels. They are only taken while the run does what the
README says of it: a machine that is busy with something else gives a picture of that.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from floodway.job.status.status import read_status
from floodway.job.store.store import LocalStore
from scripts.fetch_browser import fetch_browser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
RUN_SECONDS, WAIT_SECONDS, START_SECONDS = 300, 40.0, 90.0
LATE, LEAST_SCALE = 1.1, 0.4
"""A picture shows latency at most this many times the target, and a node that is worth this much of its file."""
WIDTH, HEIGHT, PHONE = 1120, 1150, 390
Scheme = Literal["light", "dark"]
SHOTS: tuple[tuple[str, Scheme, int], ...] = (
    ("page-light", "light", WIDTH),
    ("page-dark", "dark", WIDTH),
    ("page-phone", "dark", PHONE),
)


def names() -> list[str]:
    """File names of all screenshots."""
    return [f"{name}.png" for name, _, _ in SHOTS]


def shoot(url: str, folder: Path, ready: Callable[[], None] = lambda: None) -> None:
    """Photograph the page at this address, light, dark and at a phone's width, each when `ready` returns.

    The browser itself takes CPU from a run beside it when it starts and draws a page for the first time.
    """
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=fetch_browser(), args=["--no-sandbox", "--no-proxy-server"]
        )
        for name, scheme, width in SHOTS:
            page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
            page.goto(url)
            page.wait_for_selector("#picture [data-value]", timeout=30_000)
            page.wait_for_timeout(6000)
            ready()
            page.wait_for_timeout(1200)  # the page asks once a second
            page.screenshot(path=str(folder / f"{name}.png"))
            page.close()
        browser.close()


@contextmanager
def running_demo() -> Iterator[tuple[str, Path]]:
    """The demo network on real Spark: the address of its page, and its folder, when there is something to show."""
    with tempfile.TemporaryDirectory(prefix="floodway-shot-", ignore_cleanup_errors=True) as state:
        command = [str(Path(sys.executable).parent / "floodway"), "run", "examples/networks/shop.yaml"]
        command += ["--seconds", str(RUN_SECONDS), "--target", "4", "--state", state, "--page", "127.0.0.1:0", "--json"]
        process = subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if line.startswith("page: "))
            ledger = Path(state) / "ledger"
            deadline = time.monotonic() + START_SECONDS
            while not ledger.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.5)
            time.sleep(WAIT_SECONDS)
            yield line.removeprefix("page: ").strip(), Path(state)
        finally:
            # The whole group: feeders are processes of their own, and the folder can go only when they are gone.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


def await_good_picture(state: Path) -> None:
    """Wait until latency is at its target on a machine that has time for the run, or give up."""
    deadline = time.monotonic() + START_SECONDS / 2
    while True:
        told = read_status(LocalStore(state))
        late = scale = 0.0
        if told is not None and told.plan is not None and told.latency.target:
            late, scale = (told.latency.mean or 0.0) / told.latency.target, told.plan.scale
            if late <= LATE and scale >= LEAST_SCALE:
                return
        if time.monotonic() > deadline:
            raise SystemExit(
                f"no picture: latency {late:.2f} of its target, the node worth {scale:.2f} of its file. "
                "Is something else running on this machine?"
            )
        time.sleep(0.5)


def main() -> None:
    """Photograph the page that is named, or the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="A page that is being served.")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    if given.url:
        shoot(given.url, given.out)
        return
    with running_demo() as (url, state):
        shoot(url, given.out, partial(await_good_picture, state))


if __name__ == "__main__":
    main()
