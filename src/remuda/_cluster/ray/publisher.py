"""Publishes policies: puts each into Ray's object store, once for all shards."""

from __future__ import annotations

from typing import Any

from remuda._cluster.ray import actors
from remuda._cluster.ray.policies import pickle_policy
from remuda._training.acting import check_policy


class Publisher:
    """Keeps the newest policy in Ray's object store. Requests for rollouts refer to it there.

    Attributes:
        version: The number of the newest policy; -1 before the first.
        newest: A list with the reference to the policy. Ray would fetch a bare reference for each request.
    """

    def __init__(self) -> None:
        self.version = -1
        self.newest: list[actors.Ref] = []

    def publish(self, policy: Any) -> int:
        """Makes `policy` the newest policy. Returns its version.

        Raises TypeError if `policy` is not a policy, and the exception of an object that cannot be pickled.
        """
        check_policy(policy)
        self.newest = [actors.put(pickle_policy(policy))]
        self.version += 1
        return self.version
