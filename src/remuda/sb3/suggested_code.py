"""How code for Stable-Baselines3's vector envs says what a verdict suggests; the pool has batches of some envs."""

from __future__ import annotations

from remuda._faces.stats import SuggestedCode
from remuda.sb3.arguments import REFUSED

SUGGESTED_CODE = SuggestedCode(
    make="envs = remuda.sb3.SubprocVecEnv({env_fns}, {options})",
    spare="envs = remuda.sb3.SubprocVecEnv(env_fns + env_fns[:1] * {spares}, spares={spares}, {options})",
    split="""\
halves = envs.split(2)
for half in halves:
    half.step_async(policy(half.reset()))
while True:
    for half in halves:
        obs, rewards, dones, infos = half.step_wait()
        half.step_async(policy(obs))""",
    refused=REFUSED,
)
