"""Participants for real: leases and moves on shared storage, the journal, the offer API, and the loop of one member."""
