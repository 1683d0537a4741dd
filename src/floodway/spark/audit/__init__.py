"""Do ledgers tell the truth? Reconciled with Spark's journal, the logs and the sinks."""
