"""Files of traces: opens, writes and merges them."""
