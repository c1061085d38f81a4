"""Envs."""
