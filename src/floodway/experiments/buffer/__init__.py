"""The buffer paper's Figures 3 to 8."""
