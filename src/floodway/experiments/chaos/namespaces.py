"""Namespaces of Linux: a file system that is read-only, or a network of its own, for one process and its children.

They need root, or a kernel that gives users namespaces of their own; where they cannot be had, `missing` says why.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

_NEWNS, _NEWNET = 0x0002_0000, 0x4000_0000
_TUN = "/dev/net/tun"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x1, 0x1000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x4_0000


def make_read_only(folder: Path) -> None:
    """From now on this process, and nobody else, finds a folder on a read-only file system."""
    _call("unshare", _NEWNS)
    _mount(None, "/", _REC | _PRIVATE)  # or all others would see it as well
    _mount(str(folder), str(folder), _BIND | _REC)
    _mount(str(folder), str(folder), _BIND | _REMOUNT | _RDONLY)


def own_network(address: str) -> int:
    """Give this process a network with nothing but loopback and one TUN device; the device."""
    _call("unshare", _NEWNET)
    device = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"fw0", _IFF_TUN | _IFF_NO_PI))
    for words in ("link set lo up", f"addr add {address} dev fw0", "link set fw0 up"):
        subprocess.run(["ip", *words.split()], check=True)
    return device


def missing() -> str | None:
    """Why there are no mount namespaces here; None if there are."""
    return _refused(_NEWNS)


def network_missing() -> str | None:
    """Why there are no network namespaces with a device here; None if there are."""
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not installed"
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return f"{_TUN} is not there, or not for this user"
    return _refused(_NEWNET)


@cache
def _refused(kind: int) -> str | None:
    child = os.fork()
    if child == 0:
        try:
            _call("unshare", kind)
        except OSError as error:
            os._exit(error.errno or 1)
        except BaseException:
            os._exit(255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else f"no namespace of its own ({os.strerror(code)}); it needs root"


def _mount(source: str | None, target: str, flags: int) -> None:
    _call("mount", None if source is None else os.fsencode(source), os.fsencode(target), None, flags, None)


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
