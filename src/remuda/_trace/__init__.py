"""Files of traces: how they are opened, and merged."""
