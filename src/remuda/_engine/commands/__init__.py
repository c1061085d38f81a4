"""Sends commands to envs, and receives their results."""
