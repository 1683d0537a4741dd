"""The store at a place that a user has named."""

from __future__ import annotations

from floodway.job.store import LocalStore, Store, StoreError, checked_place, local_folder, scheme_of


def open_store(place: str) -> Store:
    """The store at a folder or URI; InputError for one that cannot be. Nothing is read or written yet.

    >>> open_store("file:/data/state").uri
    'file:///data/state'
    """
    place = checked_place(place)
    if scheme_of(place) == "file":
        return LocalStore(local_folder(place))
    raise StoreError(f"{place} cannot be opened yet", hint="Use a folder")
