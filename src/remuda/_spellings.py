"""Other spellings of the attributes of batches and rollouts: singular, plural, and Gymnasium's names."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from remuda._error_frames import holds_nothing

_GROUPS = (
    ("reward", "rewards"),
    ("terminated", "terminations", "terminateds"),
    ("truncated", "truncations", "truncateds"),
    ("done", "dones"),
    ("obs", "observation", "observations"),
    ("final_obs", "final_observation", "final_observations"),
    ("action", "actions"),
    ("info", "infos"),
    ("extra", "extras"),
    ("column", "columns"),
    ("fault", "faults"),
    ("env_id", "env_ids"),
    ("episode_start", "episode_starts"),
    ("step", "steps"),
)
_SPELLINGS = {name: group for group in _GROUPS for name in group}


class OtherSpellings:
    """Finds an attribute by another spelling of its name. If none is found, the error suggests a similar name."""

    if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise accept any name

        @holds_nothing
        def __getattr__(self, name: str) -> Any:
            if name in dir(type(self)):  # the attribute exists, but its property raised AttributeError: raise it again
                return object.__getattribute__(self, name)
            for spelling in _SPELLINGS.get(name, ()):
                try:
                    return object.__getattribute__(self, spelling)
                except AttributeError:
                    continue
            text = f"{type(self).__name__!r} object has no attribute {name!r}{_advice(self, name)}"
            raise AttributeError(text, name=name)  # without `name=`, Python would store the object in the error


class InSingular(OtherSpellings):
    """Accepts `reward`, `terminated` and `truncated` for `rewards`, `terminations` and `truncations`."""

    if TYPE_CHECKING:

        @property
        def reward(self) -> Any: ...
        @property
        def terminated(self) -> Any: ...
        @property
        def truncated(self) -> Any: ...


class InPlural(OtherSpellings):
    """Accepts `rewards`, `terminations` and `truncations` for `reward`, `terminated` and `truncated`."""

    if TYPE_CHECKING:

        @property
        def rewards(self) -> Any: ...
        @property
        def terminations(self) -> Any: ...
        @property
        def truncations(self) -> Any: ...


def _advice(of: object, name: str) -> str:
    there = [one for one in dir(of) if not one.startswith("_")]
    similar = [] if name.startswith("_") else difflib.get_close_matches(name, there, 1)
    return f"; use {similar[0]!r}" if similar else ""
