"""Workers that are processes: their start, connection and end."""
