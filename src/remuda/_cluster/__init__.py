"""A pool whose envs run on several machines: shards, which are Ray actors with a pool each, and who drives them."""
