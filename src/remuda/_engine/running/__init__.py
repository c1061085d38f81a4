"""The objects of a running pool that supervision, tracing and the pool's methods share."""
