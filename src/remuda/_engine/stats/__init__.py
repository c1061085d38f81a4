"""The figures of a pool, snapshots of the figures, and the verdict on the pool's throughput."""
