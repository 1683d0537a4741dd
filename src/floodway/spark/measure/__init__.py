"""What operators and queries cost, and estimates from what was kept."""
