"""HOW MUCH, over time: control laws as pure `update(state, observation) -> (state, decision)`; no queues, no clock."""
