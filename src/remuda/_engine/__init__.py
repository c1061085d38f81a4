"""The engine: starts and supervises pools, and sends their commands."""
