"""Traces: the events of pools in a file that Perfetto and Chrome show."""
