"""The running pool, as supervision, tracing and the pool's methods share it."""
