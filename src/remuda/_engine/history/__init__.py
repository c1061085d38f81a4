"""The faults and states of workers that a pool remembers, for reports and traces."""
