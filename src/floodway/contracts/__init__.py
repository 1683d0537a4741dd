"""WHO takes it: contracts, marginal cost, offers, negotiation, ledger."""
