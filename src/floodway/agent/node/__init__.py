"""A node of a network as a process of its own, and all of them under one supervisor."""
