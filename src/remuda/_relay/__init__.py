"""Logs, warnings and output of workers on their way to the pool's process."""
