"""The contract paper's table, figures and lemmas, simulated."""
