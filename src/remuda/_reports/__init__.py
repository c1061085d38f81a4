"""Reports: results as a table in a terminal, and as a picture."""
