"""The table of autoreset modes. A mode decides when the next episode of an env begins."""

from __future__ import annotations

from dataclasses import dataclass

from remuda import _core


@dataclass(frozen=True, kw_only=True)
class AutoresetMode:
    """The properties of one autoreset mode. Exactly one of the first four attributes is True.

    Attributes:
        in_next_step: The next step resets the env, and ignores its action.
        in_same_step: The step that ends an episode resets the env too: its row has the first observation of the next
            episode, and the terminal observation beside it.
        by_caller: The env is reset when the caller requests it.
        in_background: The pool resets the env by itself, as soon as the caller has received the episode's last row.
        core: The value of the core's enumeration.
        gymnasium: The value of Gymnasium's enumeration; None if it has no such mode.
        why_no_rollout: The reason why a rollout cannot be filled; None if it can.
    """

    in_next_step: bool = False
    in_same_step: bool = False
    by_caller: bool = False
    in_background: bool = False
    core: _core.Autoreset
    gymnasium: str | None = None
    why_no_rollout: str | None = None


AUTORESET_MODES = {
    "next_step": AutoresetMode(in_next_step=True, core=_core.Autoreset.NEXT_STEP, gymnasium="NextStep"),
    "same_step": AutoresetMode(in_same_step=True, core=_core.Autoreset.SAME_STEP, gymnasium="SameStep"),
    "disabled": AutoresetMode(
        by_caller=True,
        core=_core.Autoreset.DISABLED,
        gymnasium="Disabled",
        why_no_rollout="there is no row for the resets that you ask for",
    ),
    "background": AutoresetMode(
        in_background=True,
        core=_core.Autoreset.BACKGROUND,
        why_no_rollout="resets come by themselves, between the steps",
    ),
}
"""The modes, by the values of the option `autoreset`."""
