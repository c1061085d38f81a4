"""Crash records: what they hold, and their file."""
