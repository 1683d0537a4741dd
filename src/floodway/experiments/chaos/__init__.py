"""Faults against real jobs: what is killed, stopped, damaged or cut off, and what must hold afterwards."""
