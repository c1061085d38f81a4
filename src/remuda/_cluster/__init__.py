"""A pool whose envs run on several machines: its shards, which are Ray actors with a pool each, and their driver."""
