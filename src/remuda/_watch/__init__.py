"""Shows the running pools of this user in another process, which only reads their memory."""
