"""The fork server, and its client in the owner's process."""
