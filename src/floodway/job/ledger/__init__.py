"""What became of every tuple: the ledger, the one fold over it, facts for a backfill, findings of an audit."""
