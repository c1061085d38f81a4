"""The pool and its components: sending and receiving, batches, infos, seeds."""
