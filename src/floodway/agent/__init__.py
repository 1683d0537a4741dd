"""One process a node or participant: its loop, its HTTP API, its peers."""
