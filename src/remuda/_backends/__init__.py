"""Backends: start, reach and end workers, which are processes, threads, or the caller itself."""
