"""The contract paper's Figure 13, on three Spark applications."""
