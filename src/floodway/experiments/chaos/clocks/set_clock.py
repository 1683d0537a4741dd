"""A machine whose clock is set and drifts, for one process and all that it starts: Python, Java, workers.

The clock of the real machine belongs to everybody on it. A small library, made here by the C compiler and loaded before
all others (`LD_PRELOAD`), answers in its place: it adds to the real time what a shared file says. So a step reaches
every process of a job at once, between any two of its instructions, as a real one does. Monotonic clocks are left as
they are, and so are the times of files, which another machine may keep.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from floodway.errors import InputError

VARIABLE = "FLOODWAY_CHAOS_CLOCK"
_SETTING = struct.Struct("qqq")
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting { volatile int64_t ahead_ns; int64_t origin_ns; int64_t drift_ppm; };
static const struct setting *set;
static int (*kernel)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    kernel = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("FLOODWAY_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, sizeof *set, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) set = found;
}

static int ask(clockid_t id, struct timespec *at) {
    return kernel ? kernel(id, at) : (int)syscall(SYS_clock_gettime, id, at);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = ask(id, at);
    if (failed || !set || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
    struct timespec now;
    ask(CLOCK_MONOTONIC, &now);
    int64_t passed_ns = now.tv_sec * 1000000000LL + now.tv_nsec - set->origin_ns;
    int64_t ns = at->tv_sec * 1000000000LL + at->tv_nsec + set->ahead_ns + passed_ns / 1000000 * set->drift_ppm;
    at->tv_sec = ns / 1000000000LL;
    at->tv_nsec = ns % 1000000000LL;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def missing() -> str | None:
    """What keeps this machine from it; None if nothing does."""
    return None if shutil.which("cc") else "there is no C compiler (cc)"


class SetClock:
    """The clock of the processes that are started with `variables`; it goes faster by `drift_ppm` from now on."""

    def __init__(self, folder: Path, drift_ppm: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._setting, library = folder / "clock", folder / "clock.so"
        (folder / "clock.c").write_text(_SOURCE, encoding="utf-8")
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(folder / "clock.c"), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(
                f"the clock's library cannot be made: {done.stderr}", hint="Is cc a C compiler with glibc?"
            )
        self._ahead_ns, self._origin_ns, self._drift_ppm = 0, time.monotonic_ns(), drift_ppm
        self._setting.write_bytes(_SETTING.pack(0, self._origin_ns, drift_ppm))
        self.variables: Mapping[str, str] = {"LD_PRELOAD": str(library), VARIABLE: str(self._setting)}

    def step(self, seconds: float) -> None:
        """Set the clock ahead, or back."""
        self._ahead_ns += round(seconds * 1e9)
        with self._setting.open("r+b") as file, mmap.mmap(file.fileno(), _SETTING.size) as shared:
            shared[:8] = struct.pack("q", self._ahead_ns)

    def now_us(self) -> int:
        """What it shows, in microseconds of the epoch."""
        passed_ns = time.monotonic_ns() - self._origin_ns
        return (time.time_ns() + self._ahead_ns + passed_ns // 1_000_000 * self._drift_ppm) // 1000
