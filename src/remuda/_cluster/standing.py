"""What envs were told for good, so that the shard that succeeds another one can be told it again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda._cluster.shares import Share


@dataclass(frozen=True)
class Message:
    """What an env was told: a function that is run for it."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    again: Callable[..., Any] | None


class Standing:
    """What envs were told for good: of each subject the latest, in the order in which the subjects came up first."""

    def __init__(self) -> None:
        self._messages: dict[int, dict[Hashable, Message]] = {}
        self._options: dict[int, dict[str, Any] | None] = {}

    def tell(self, env_id: int, about: Hashable, message: Message) -> None:
        self._messages.setdefault(env_id, {})[about] = message

    def remember(self, env_ids: Sequence[int], options: Sequence[dict[str, Any] | None]) -> None:
        self._options.update(zip(env_ids, options, strict=True))

    def of(self, share: Share) -> tuple[dict[int, dict[str, Any]], list[tuple[Any, ...]]]:
        """Options and messages for the envs of a shard, by their numbers there."""
        options = {env - share.first: known for env in share.env_ids if (known := self._options.get(env)) is not None}
        messages = [
            (said.fn, said.args, said.kwargs, [env - share.first], about, said.again)
            for env in share.env_ids
            for about, said in self._messages.get(env, {}).items()
        ]
        return options, messages
