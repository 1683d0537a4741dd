"""Puts the repository's root on the import path, so that tests share `tests.strategies` and `tests.oracles`."""
