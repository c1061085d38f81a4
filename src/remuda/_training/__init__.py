"""Exact evaluation of a policy, and collection of rollouts."""
