"""The part that runs in Ray actors: a pool with some of the envs, which runs the commands of the driver."""
