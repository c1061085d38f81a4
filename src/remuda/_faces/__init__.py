"""Code that all faces share."""
