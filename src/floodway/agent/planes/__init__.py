"""Where a node's plans come from: alone, D-FIT, or a coordinator; and the messages between them."""
