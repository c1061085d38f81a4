"""Supervision: handles faults of envs, and restarts their workers."""
