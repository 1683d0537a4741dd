"""How accurate estimates from kept tuples are, and which keeps an accuracy needs."""
