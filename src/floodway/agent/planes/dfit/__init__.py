"""D-FIT between agents: pure state machines, their tables and planner."""
