"""``remuda doctor``: plays an env, and its episodes again, and checks its pictures and the memory of its resets."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from remuda._bench import workloads
from remuda.errors import RemudaError

from .options import Subcommands, add_subcommand, at_least, refuse


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, doctor, "doctor")
    add = parser.add_argument
    add("env", help="a Gymnasium id, or module:factory")
    add("--beside", metavar="ENV", help="the second env (default: the same)")
    add("--steps", type=at_least(1), default=1000, metavar="N", help="number of random steps (default: 1000)")
    add("--resets", type=at_least(8), default=30, metavar="N", help="number of measured resets (default: 30)")
    add("--timeout", type=at_least(0.1, float), default=300.0, metavar="S", help="seconds in total (default: 300)")
    add("--devices", metavar="LIST", help="GPUs that workers take in turn: auto, or cuda:0,cuda:1")
    add("--json", action="store_true", help="print JSON")


def doctor(options: argparse.Namespace) -> int:
    """Play episodes of an env twice, compare its pictures beside another env, and measure its resets' memory.

    The pictures are those of render(), or in the observations. An env of a Gymnasium id is made with
    render_mode="rgb_array" if it has that. All trials run in worker processes. Exit status 1 if anything is wrong.
    """
    from remuda._doctor.examination import examine

    chosen: dict[str, Any] = {}
    if options.devices is not None:
        chosen["devices"] = "auto" if options.devices == "auto" else options.devices.split(",")
    try:
        env_fn = workloads.resolve_drawing(options.env)
        other_fn = env_fn if options.beside is None else workloads.resolve_drawing(options.beside)
        numbers = {"steps": options.steps, "num_resets": options.resets, "timeout": options.timeout}
        report = examine(options.env, env_fn, other_fn, **numbers, **chosen)
    except (workloads.WorkloadError, ValueError) as error:
        return refuse(str(error))
    except RemudaError as error:
        print(f"error: {options.env} cannot be examined: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report.as_json(), indent=2) if options.json else report)
    return 1 if report.is_wrong else 0
