"""Converts arrays to torch tensors: shared on the CPU, copied to a GPU without waiting. Imports torch when needed."""
