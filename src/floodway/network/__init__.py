"""WHAT runs: streams, operators, arcs, nodes, outputs; load and throughput arithmetic; the network file."""
