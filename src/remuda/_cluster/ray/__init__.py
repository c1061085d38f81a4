"""The use of Ray's API: clusters, actors, resources, the object store and metrics."""

from remuda.errors import MissingFrameworkError

try:
    import ray  # noqa: F401
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":  # a package that Ray needs is missing: the error names it
        raise
    raise MissingFrameworkError(
        'envs on a cluster need Ray, which is not installed: pip install "remuda-rl[ray]"', name=error.name
    ) from error
