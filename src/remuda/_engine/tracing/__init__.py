"""Traces: what happened when, in a file that Perfetto and Chrome show."""
