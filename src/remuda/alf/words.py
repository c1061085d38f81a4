"""How code for ALF's parallel envs says what a verdict suggests."""

from __future__ import annotations

WORDS = {
    "make": "env = remuda.alf.FastParallelEnvironment({env_fns}, {options})",
    "spare": (
        "env = remuda.alf.FastParallelEnvironment(\n"
        "    env_fns + env_fns[:1] * {spares}, num_spare_envs_for_reload={spares})"
    ),
    "split": "",
    "partial": "",
}
"""Of :class:`remuda.Setup`."""
