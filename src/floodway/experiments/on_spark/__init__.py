"""The Borealis papers' networks on real Spark: in one process, and with an application for each node."""
