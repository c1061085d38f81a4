"""Faults of envs, and the restarts that follow."""
