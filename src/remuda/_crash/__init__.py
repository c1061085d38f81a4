"""Crash records: their data, and the file in which they are stored."""
