"""Rollouts: T steps of n envs, which workers write in place, or shards fill on a cluster."""
