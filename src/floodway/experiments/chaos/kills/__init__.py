"""Processes killed and held up in every phase of a batch and of the protocols."""
