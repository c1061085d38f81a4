"""The process that forks workers, and its owner's side."""
