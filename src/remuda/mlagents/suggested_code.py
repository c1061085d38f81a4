"""How code for ML-Agents' env manager says what a verdict suggests; it steps the first that come in any case."""

from __future__ import annotations

from remuda._faces.stats import SuggestedCode
from remuda.mlagents.arguments import REFUSED

SUGGESTED_CODE = SuggestedCode(
    make="manager = remuda.mlagents.SubprocessEnvManager(env_factory, run_options, n_env, {options})",
    spare="",
    split="",
    partial="",
    slim="",
    refused=REFUSED,
)
