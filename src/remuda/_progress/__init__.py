"""Progress bars for what takes long."""
