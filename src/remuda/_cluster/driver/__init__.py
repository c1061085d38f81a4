"""The driver's end of the shards, which the pool's engine uses as a backend."""
