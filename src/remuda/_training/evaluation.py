"""Evaluation: the result of `remuda.evaluate`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from remuda._training.episodes import Episodes


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Episodes):
    """What `remuda.evaluate` returns. Row k of each array is the k-th of N episodes, in the order of their starts.

    Attributes:
        seed: What the seeds of the episodes were derived from: the same one gives the same episodes.
        returns: (N,) float64: sums of rewards, as the envs gave them.
        lengths: (N,) int64: steps.
        terminated: (N,) bool: whether the episode ended in a terminal state; else it was cut off.
        seeds: (N,) int64: what the env was reset with.
        env_ids: (N,) int64: which env played it.
        infos: The last info of each episode: where envs tell of success, say.
        faults: Why episodes were played once more, in the order in which that happened.
        videos: The files that were written.
    """

    def to_html(self, path: str | os.PathLike[str], title: str = "Evaluation") -> None:
        """Writes a page of it: the mean and its interval, the spread of returns and lengths, every episode, the videos.

        It is one file, which fetches nothing and can be sent by mail: videos of up to 8 MiB are in it. It also says how
        the program was run, on what machine, and the versions of what is installed.

        Args:
            path: Overwritten, if there is such a file; its folder is made, if there is none.
            title: What the page is headed with: the name of the policy, say.

        Raises:
            OSError: It cannot be written.
        """
        from remuda._reports.origin import Origin  # few programs write a page
        from remuda._training.evaluation_page import page

        page(self, title, Origin.here()).save(path)

    def __repr__(self) -> str:
        low, high = self.interval()
        again = f", {len(self.faults)} played again after a fault" if self.faults else ""
        return (
            f"<Evaluation of {len(self)} episodes: mean return {self.mean:.6g} (95 %: {low:.6g} to {high:.6g}), "
            f"mean length {self.lengths.mean():.6g}{again}>"
        )
