"""Functions that a user names as text: `package.module:function`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from floodway.errors import InputError


def named_function(where: str, name: str) -> Callable[..., Any]:
    """The function of this name; `where` says in errors where it was given.

    >>> named_function("run", "os.path:basename")("a/b")
    'b'
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise InputError(f"{where}: {name!r} names no function", hint="Write package.module:function")
    try:
        function = getattr(import_module(module_name), function_name)
    except ImportError as error:
        raise InputError(
            f"{where}: {module_name!r} cannot be imported: {error}", hint="Check the name and the Python path"
        ) from error
    except AttributeError:
        raise InputError(
            f"{where}: {module_name!r} has no function {function_name!r}", hint="Check the spelling"
        ) from None
    if not callable(function):
        raise InputError(f"{where}: {name!r} is not a function", hint="Name a function")
    loaded: Callable[..., Any] = function
    return loaded
