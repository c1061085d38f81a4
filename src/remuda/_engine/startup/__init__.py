"""From env factories to running workers."""
