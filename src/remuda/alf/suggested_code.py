"""How code for ALF's parallel envs says what a verdict suggests."""

from __future__ import annotations

from remuda._faces.stats import SuggestedCode
from remuda.alf.arguments import REFUSED

SUGGESTED_CODE = SuggestedCode(
    make="env = remuda.alf.FastParallelEnvironment({env_fns}, {options})",
    spare=(
        "env = remuda.alf.FastParallelEnvironment(\n"
        "    env_fns + env_fns[:1] * {spares}, num_spare_envs_for_reload={spares}, {options})"
    ),
    split="",
    partial="",
    slim="",
    refused=REFUSED,
    renamed={
        "spares": ("num_spare_envs_for_reload", {}),
        "starts_serially": ("start_serially", {}),
        "threads_per_worker": ("torch_num_threads_per_env", {}),
    },
)
