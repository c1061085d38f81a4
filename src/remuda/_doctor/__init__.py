"""Examines an env: its pictures in a process with other envs, its GPU, and whether its resets leak memory."""
