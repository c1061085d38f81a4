"""The worker's side: its main function, and the hosts of its envs."""
