"""FIT, C-FIT and D-FIT: feasible input tables, built from the leaves up, looked up by rates."""
