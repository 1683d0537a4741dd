"""Windows that are dropped whole: their fates, their keeps over event time, and where in a network they apply."""
