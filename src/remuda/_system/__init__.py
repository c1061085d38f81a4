"""What the operating system allows this process: cores, memory, descriptors, control groups."""
