"""Writes the calls of a replay as a program without remuda, for the author of a simulator."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium.envs.registration import registry

from remuda._crash.file import printable
from remuda._replay.plan import Op, Plan, Reset
from remuda._replay.player import Player
from remuda._replay.recorded_code import RecordedCode
from remuda.errors import RecordError


def write_script(plan: Plan, code: RecordedCode) -> str:
    """Returns a program that builds the env and makes the calls of a plan. Builds the env to read its actions and spec.

    Raises:
        RecordError: The record does not suffice, or has a value that Python code cannot state.
        Exception: The factory raised it.
    """
    player = Player(code)
    try:
        return "\n".join([*_head(player, code), *_calls(plan, player), ""])
    finally:
        with suppress(Exception):
            player.env.close()


def _head(player: Player, code: RecordedCode) -> Iterator[str]:
    record = code.record
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield _comment(f"The last call failed: {record.fault.kind} in {record.fault.operation}. {record.fault.error}")
    yield _comment(f"Recorded with {versions}.")
    yield from ("import faulthandler", "", "import numpy as np", "from numpy import inf, nan", "")
    yield from ("faulthandler.enable()", "", "", "def make_env():")
    yield from (f"    {line}" for line in _building(player.env, code))
    yield from ("", "", "env = make_env()")


def _comment(text: str) -> str:
    return "# " + " ".join(printable(text).split())  # one line: the record may come from another person


def _building(env: Any, code: RecordedCode) -> list[str]:
    """Returns the lines that build the env, or raise an error that asks for them."""
    if code.factory is not None:
        module, _, name = code.factory.partition(":")
        return [f"from {module} import {name}", "", f"return {name}()"]
    with suppress(RecordError):  # arguments that code cannot state
        if (call := _make_call(getattr(env, "spec", None))) is not None:
            return call
    return [f"raise NotImplementedError({f'return the env of {printable(code.record.factory)} here'!r})"]


def _make_call(spec: Any) -> list[str] | None:
    """Returns the lines that make an env by its id; None if it is not registered by name, or has further wrappers."""
    known = None if spec is None else registry.get(spec.id)
    if known is None or not isinstance(spec.entry_point, str) or spec.additional_wrappers:
        return None
    package = spec.entry_point.partition(":")[0].partition(".")[0]  # its import registers the env
    if package == "__main__":
        return None
    arguments = dict(spec.kwargs)
    if spec.max_episode_steps != known.max_episode_steps:
        arguments["max_episode_steps"] = spec.max_episode_steps
    given = "".join(f", {name}={_literal(value)}" for name, value in arguments.items())
    imports = [f"import {name}" for name in dict.fromkeys(("gymnasium", package))]
    return [*imports, "", f"return gymnasium.make({spec.id!r}{given})"]


def _calls(plan: Plan, player: Player) -> Iterator[str]:
    for is_reset, ops in itertools.groupby(plan, lambda op: isinstance(op, Reset)):
        if is_reset:
            for op in ops:
                yield from ("", *_reset(op, player))
            continue
        yield "for action in ("
        yield from (f"    {_literal(_action_of(op, player))}," for op in ops)
        yield from ("):", "    env.step(action)")


def _action_of(op: Op, player: Player) -> Any:
    call: Any = player.prepare(op)
    return call.args[0]


def _reset(op: Op, player: Player) -> Iterator[str]:
    start = op.start if isinstance(op, Reset) else None
    has_seed = start is None or start.seed is not None
    then = None if has_seed else type(player.env.unwrapped.np_random.bit_generator)
    arguments = getattr(player.prepare(op), "keywords", {})
    if not has_seed:
        generator = player.env.unwrapped.np_random.bit_generator
        if type(generator) is not then:
            yield f"env.unwrapped.np_random = np.random.Generator(np.random.{type(generator).__name__}())"
        yield f"env.unwrapped.np_random.bit_generator.state = {_literal(generator.state)}"
    yield f"env.reset({', '.join(f'{name}={_literal(value)}' for name, value in arguments.items())})"


def _literal(value: Any) -> str:
    """Returns code for a value. Raises RecordError if there is none."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        shape = "" if value.size else f".reshape({value.shape})"
        return f"np.array({value.tolist()!r}, dtype={value.dtype.name!r}){shape}"
    if isinstance(value, np.generic):
        name = "bool_" if isinstance(value, np.bool_) else type(value).__name__  # NumPy 1 has no `np.bool`
        return f"np.{name}({value.item()!r})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(one)}" for key, one in value.items()) + "}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(_literal, value)) + ("," if len(value) == 1 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if type(value) is float:
        return repr(value)
    with suppress(ValueError, SyntaxError):
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    raise RecordError(f"expected values that Python code can state, got {value!r}: replay it with remuda instead")
