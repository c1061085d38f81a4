"""Takes the fixtures for all tests of this folder."""

from relayed import heard, reaction  # noqa: F401
