"""The pool and what it is made of: sending and receiving, batches, infos, seeds."""
