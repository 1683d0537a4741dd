"""Tests mirror the source; `strategies` and `oracles` are shared."""
