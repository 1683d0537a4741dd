"""What every protected job has: decision, ledger and the fold over it, status, findings, places; no Spark."""
