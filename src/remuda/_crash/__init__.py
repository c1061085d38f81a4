"""Crash records: their data, and their file."""
