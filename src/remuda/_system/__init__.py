"""The limits of the operating system for this process: cores, memory, descriptors, control groups."""
