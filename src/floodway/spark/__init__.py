"""The ONLY importer of pyspark: source, drops, logs between nodes, statistics, deployment, one-line shed."""
