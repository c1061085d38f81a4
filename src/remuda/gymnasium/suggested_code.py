"""How code for Gymnasium's vector envs says what a verdict suggests; the pool has batches of some envs."""

from __future__ import annotations

from remuda._faces.stats import SuggestedCode
from remuda.gymnasium.arguments import REFUSED

SUGGESTED_CODE = SuggestedCode(
    make="envs = remuda.gymnasium.AsyncVectorEnv({env_fns}, {options})",
    spare="envs = remuda.gymnasium.AsyncVectorEnv(env_fns + env_fns[:1] * {spares}, spares={spares}, {options})",
    split="""\
halves = envs.split(2)
for half in halves:
    obs, infos = half.reset()
    half.step_async(policy(obs))
while True:
    for half in halves:
        obs, rewards, terminations, truncations, infos = half.step_wait()
        half.step_async(policy(obs))""",
    refused=REFUSED,
    renamed={
        "autoreset": ("autoreset_mode", {'"same_step"': '"SameStep"', '"disabled"': '"Disabled"'}),
        "start_method": ("context", {}),
    },
)
