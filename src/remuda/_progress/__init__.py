"""Progress bars, for what takes longer than somebody likes to wait without a word."""
