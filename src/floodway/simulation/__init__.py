"""The same policies on a simulated clock."""
