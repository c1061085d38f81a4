"""Figures of a pool, snapshots of them, and the verdict on its throughput."""
