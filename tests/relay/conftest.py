"""Imports the fixtures for all tests of this folder."""

from relayed import log_records, reaction  # noqa: F401
