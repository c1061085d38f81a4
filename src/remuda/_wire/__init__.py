"""Transport between a pool and its workers: the layout of shared memory, messages over sockets, pickled objects."""
