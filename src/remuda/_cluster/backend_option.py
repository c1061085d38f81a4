"""`remuda.Ray`: the value of the option `backend` that puts envs on a Ray cluster. It is above all other files here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda._cluster.description import ClusterDescription
from remuda._engine.options.pool_options import RemoteBackend

if TYPE_CHECKING:
    from remuda._cluster.pool import ClusterPool


class Ray(ClusterDescription, RemoteBackend):
    """Runs the envs of a pool on a Ray cluster: `Pool(env_fns, backend=remuda.Ray(shards=8, cpus_per_shard=4))`.

    The envs are divided among *shards*. A shard is a Ray actor with a pool of its own. Ray chooses the machine of each
    shard. Neighbouring envs share a shard. Needs `pip install "remuda-rl[ray]"`.

    Attributes:
        shards: The number of shards; at most the number of factories.
        cpus_per_shard: Ray's CPUs for each shard. A fraction such as 0.5 lets shards of cheap envs share a core. Unless
            `num_workers` is given, a shard has one worker for each whole CPU, at least one.
        gpus_per_shard: Ray's GPUs for each shard, for simulators, or for a policy in the shard: a fraction below 1, or
            a whole number.
        resources: Further resources for each shard, by their names in Ray: `{"simulator": 1}`.
        placement: "auto": the placement group that this code runs in (for example in a trial of Ray Tune), otherwise
            "spread". "spread": different machines if possible; "pack": few machines. "strict_spread" and "strict_pack"
            require different machines, or one machine: starting waits until the cluster has them. A placement group of
            Ray: shard i runs in bundle i. Any other scheduling strategy of Ray applies to each shard.
        address: The address of the cluster, "auto" or for example "10.0.0.1:6379". None: the cluster that this process
            is connected to, otherwise the one in the variable RAY_ADDRESS, otherwise a new one on this machine, which
            ends with the pool.
        runtime_env: Ray's `runtime_env`: packages, files and environment variables of the shards' processes. Folders
            of this machine (`working_dir`, `py_modules`) are uploaded.
        backend: The backend of each shard: "process"; "serial", which steps envs in the actor, for envs that take
            microseconds; "thread"; or "auto", which measures the envs if `num_workers="auto"`.

    Raises:
        ValueError: A number is out of range, or the name in `placement` or `backend` is unknown.
        TypeError: `resources` is not a mapping.
    """

    def pool_type(self) -> type[ClusterPool]:
        """The class of the pool that drives the shards."""
        from remuda._cluster.pool import ClusterPool  # imported here because only a pool needs it

        return ClusterPool
