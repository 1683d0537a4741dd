"""What a participant keeps over a restart: contracts, fragments, entries and payments, in one database."""
