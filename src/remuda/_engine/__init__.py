"""The engine: pools, how they start, and how they are supervised."""
