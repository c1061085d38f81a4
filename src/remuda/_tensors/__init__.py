"""Arrays as torch tensors: shared on the CPU, copied to a GPU without waiting. Nothing here imports torch by itself."""
