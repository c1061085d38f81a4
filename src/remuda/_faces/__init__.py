"""The kit that all faces use."""
