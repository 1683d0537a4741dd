"""WHERE it waits: queues, schedulers, adaptors, cleaner."""
