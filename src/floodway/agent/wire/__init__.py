"""HTTP between agents: one guard in front of every route, signed or mutually authenticated, bounded, counted."""
