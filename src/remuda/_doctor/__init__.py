"""Examines an env: its steps, its pictures in a process with other envs, its GPU, and the memory of its resets."""
