"""Pools with envs on several machines: shards, which are Ray actors with a pool each, and the driver of the shards."""
