"""How workers come to be, and how the pool reaches them: processes, threads, or the caller itself."""
