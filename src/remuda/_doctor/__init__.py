"""Examines an env: whether it draws correctly beside other envs, on which GPU, and whether its resets leak memory."""
