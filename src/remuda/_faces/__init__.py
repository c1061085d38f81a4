"""What several faces share."""
