"""The class `Pool` and its base classes."""
