"""What a pool has counted: figures, snapshots of them, and what they say of the throughput."""
