"""WHAT to drop, and where: LP, exact region map, Solver, Solver-W, FIT; plans and their indexes."""
