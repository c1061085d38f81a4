"""Progress bars for long operations."""
