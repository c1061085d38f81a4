"""The code that runs in workers: their main function, and the hosts of their envs."""
