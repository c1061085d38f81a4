"""Reports: results as a table in a terminal, as a picture, and as one HTML page that fetches nothing."""
