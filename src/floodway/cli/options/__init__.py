"""Options that several commands have, and how they are checked."""
