"""Looks at the running pools of this user from another process, by reading their memory alone."""
