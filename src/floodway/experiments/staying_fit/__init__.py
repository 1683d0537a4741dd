"""The load shedding papers' tables, figures and worked examples."""
