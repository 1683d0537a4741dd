"""Shares by key, and the first tuples of every key."""
