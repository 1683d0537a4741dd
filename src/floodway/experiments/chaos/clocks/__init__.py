"""Clocks that are set while jobs run: a file per kind of process."""
