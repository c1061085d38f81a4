"""Looks at the running pools of this user from another process: nothing of theirs is written to or asked for."""
