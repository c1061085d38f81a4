"""Examines an env: whether it draws right beside others, on which GPU, and whether its resets leak memory."""
