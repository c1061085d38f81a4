"""Examines an env: whether it draws correctly beside other envs, which GPU it uses, and whether resets leak memory."""
