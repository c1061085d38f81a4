"""Examines an env: its episodes, its pictures in a process with other envs, its GPU, and the memory of its resets."""
