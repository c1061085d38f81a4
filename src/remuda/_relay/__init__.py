"""Sends logs, warnings and output of workers to the pool's process."""
