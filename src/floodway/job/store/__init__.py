"""Where a job's state lies: stores at URIs, append-only logs of lines, locks, leases, the mode."""
