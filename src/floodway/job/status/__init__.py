"""How a job does: the one status, the batches on record, and their figures."""
