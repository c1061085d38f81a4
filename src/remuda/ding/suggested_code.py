"""How code for DI-engine's env managers says what a verdict suggests."""

from __future__ import annotations

from remuda._faces.stats import SuggestedCode
from remuda.ding.arguments import REFUSED

SUGGESTED_CODE = SuggestedCode(
    make="manager = AsyncSubprocessEnvManager({env_fns}, EasyDict(cfg, remuda=dict({options})))",
    spare="manager = AsyncSubprocessEnvManager(env_fns, EasyDict(cfg, auto_reset=True, reset_inplace=False))",
    split="",
    partial="manager = AsyncSubprocessEnvManager(env_fns, EasyDict(cfg, wait_num={enough}, step_wait_timeout=0))",
    slim="",
    refused=REFUSED,
)
