"""What commands print, draw and serve."""
