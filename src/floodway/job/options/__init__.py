"""How a job is to run: its options, and the flags that give them."""
