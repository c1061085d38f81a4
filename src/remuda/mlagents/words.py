"""How code for ML-Agents' env manager says what a verdict suggests; it steps the first that come in any case."""

from __future__ import annotations

WORDS = {
    "make": "manager = remuda.mlagents.SubprocessEnvManager(env_factory, run_options, n_env, {options})",
    "spare": "",
    "split": "",
    "partial": "",
}
"""Of :class:`remuda.Setup`."""
