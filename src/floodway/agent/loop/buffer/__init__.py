"""The buffer in the loop: queues, managers and deadlines of streams on Spark."""
