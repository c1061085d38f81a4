"""The life of workers, and how a pool reaches them: processes, threads, or the caller itself."""
