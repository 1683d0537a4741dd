"""Benchmarks: ratios measured in one run (`floodway bench`)."""
