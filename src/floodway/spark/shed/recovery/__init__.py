"""What was dropped, found again to the tuple, and made good in quiet times."""
