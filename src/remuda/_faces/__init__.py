"""What faces have in common."""
