"""The one line: a drop on any stream whose rate follows the latency."""
