"""The latency paper's figures and control laws."""
