"""The live page and the report: status and ledger of a running or finished job, made readable."""
