"""Make a Chromium available for the tests of the page: `.venv/bin/python scripts/fetch_browser.py`.

Looked for on the PATH first (and at FLOODWAY_BROWSER); else installed from the distribution's packages where that is
possible: as root, with apt-get. Nothing is fetched from anywhere else. Prints the path of the browser.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from floodway.errors import FloodwayError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium"
INSTALL_SECONDS = 600


class BrowserError(FloodwayError):
    """No browser is there and none could be installed."""


def find_browser() -> str | None:
    """The Chromium of this machine; None if there is none."""
    given = os.environ.get("FLOODWAY_BROWSER")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


def fetch_browser(*, say: Callable[[str], None] = print) -> str:
    """The path of a Chromium, installed if need be; BrowserError if it cannot be had."""
    found = find_browser()
    if found is not None:
        return found
    hint = f"Install {PACKAGE}, or name one with FLOODWAY_BROWSER"
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise BrowserError("no Chromium is on the PATH, and it can be installed by root with apt-get only", hint=hint)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    waiting = f"DPkg::Lock::Timeout={INSTALL_SECONDS}"  # another process may be installing it just now
    install = [apt, "install", "-y", "-qq", "-o", waiting, "--no-install-recommends", PACKAGE]
    for command in ([apt, "update", "-qq"], install):
        say(" ".join(command))
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BrowserError(f"{' '.join(command)} took more than {INSTALL_SECONDS} s", hint=hint) from error
        if done.returncode and command[1] == "install":
            raise BrowserError(f"{PACKAGE} could not be installed: {done.stderr.strip()[-300:]}", hint=hint)
    found = find_browser()
    if found is None:
        raise BrowserError(f"{PACKAGE} was installed and is still not on the PATH", hint=hint)
    return found


if __name__ == "__main__":
    try:
        print(fetch_browser(say=lambda text: print(text, file=sys.stderr)))
    except BrowserError as error:
        sys.exit(f"error: {error}")
