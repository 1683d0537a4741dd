"""Fragments of a network and entries of a catalogue as running Spark queries."""
