"""Default operators as one pass of Python: the pass, its steps, and hashes as Spark computes them."""
