"""What runs inside a worker: hosting envs, and vector envs."""
