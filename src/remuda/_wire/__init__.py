"""Bytes on their way: the layout of shared memory, messages over sockets, and objects as buffers."""
