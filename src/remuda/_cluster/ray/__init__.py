"""The use of Ray's API: clusters, actors, resources, the object store and metrics."""
