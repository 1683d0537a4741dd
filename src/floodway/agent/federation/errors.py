"""What can go wrong between participants."""

from __future__ import annotations

from floodway.errors import FloodwayError


class FragmentLostError(FloodwayError):
    """Somebody else owns the fragment by now: whoever gets this must stop running it."""


class MoveError(FloodwayError):
    """A move that could not be carried out; the fragment stays with, or goes back to, its giver."""


class StorageError(FloodwayError):
    """The shared storage holds something other than leases and decisions, or cannot be reached."""
