"""HOW MUCH, over time: latency controller, PID, RED', Aurora step, Tu; pure update(observation) -> decision."""
