"""Workers that are processes: starting, reaching and ending them."""
