"""Keeps lasting attributes and reset options of envs, to tell them again to the shard that succeeds another one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from remuda._cluster.shares import Share
from remuda._wire.requests import CallEnv


class Standing:
    """What envs were told for good: of each subject the latest, in the order in which the subjects came up first."""

    def __init__(self) -> None:
        self._orders: dict[int, dict[Hashable, CallEnv]] = {}
        self._options: dict[int, dict[str, Any] | None] = {}

    def tell(self, env_id: int, order: CallEnv) -> None:
        self._orders.setdefault(env_id, {})[order.about] = order

    def remember(self, env_ids: Sequence[int], options: Sequence[dict[str, Any] | None]) -> None:
        self._options.update(zip(env_ids, options, strict=True))

    def of(self, share: Share) -> tuple[dict[int, dict[str, Any]], list[tuple[int, CallEnv]]]:
        """Options and orders for the envs of a shard, by their numbers there."""
        options = {env - share.first: known for env in share.env_ids if (known := self._options.get(env)) is not None}
        orders = [(env - share.first, order) for env in share.env_ids for order in self._orders.get(env, {}).values()]
        return options, orders
