"""Writes and reads the file of a crash record: a zip, of which nothing is run when it is loaded.

record.json      all that is text and numbers
actions.npz      kinds, and action_0, action_1, ...: plain arrays
pickles/NAME     what is code, as bytes; nobody here unpickles them
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from remuda import _core
from remuda._crash.printable import printable
from remuda._crash.record import Beginning, Record, RecordedFault
from remuda.errors import RecordError

FORMAT, VERSION = "remuda crash record", 1

# Bytes of a file, and of all that it unpacks to; of them those of its text. A small file can claim to be a large one.
_LARGEST, _LARGEST_TEXT = 1 << 28, 1 << 24
_LARGEST_DIRECTORY = 1 << 16
_END = struct.Struct("<4s4H2LH")  # of an archive without a comment; among others how large its list of parts is
_LONGEST = 1 << 20  # characters of what the env or its worker has said
_PICKLES = "pickles/"
# What reading a file raises that is cut short, changed, or something else altogether. (RuntimeError: it is encrypted.)
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
_APART = ("path", "kinds", "actions", "pickles")  # of a record's fields: those that are not in its JSON


def load_record(path: str | os.PathLike[str]) -> Record:
    """Reads the crash record at `path`. Nothing that is in it is run.

    Args:
        path: Of the file, as `Fault.record` and errors have it.

    Returns: What it has, checked and unpacked.

    Raises:
        RecordError: It is no crash record, is damaged, or was written by a later version.
        OSError: The file cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)  # at once, so that an OSError is the disk's and no damage's
    try:
        if len(data) > _LARGEST:
            raise ValueError(f"expected a file of at most {_LARGEST} bytes, got a larger one")
        with _open(data) as archive:
            return _read(path, archive)
    except _DAMAGES as error:
        raise RecordError(f"expected a crash record, got {printable(str(path))}: {printable(_text(error))}") from error


def save_record(record: Record) -> Path:
    """Writes a record into the directory of `record.path`, whole or not at all, and beside a file of that name.

    Returns: Where it went.
    Only its owner may read it, as `mkstemp` makes it: tracebacks and factories may hold whatever the program knows.

    Raises:
        OSError: It cannot be written.
        ValueError: It is too large to be loaded again.
    """
    handle, name = tempfile.mkstemp(prefix=".record-", dir=record.path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(record, file)
        return _publish(name, record.path)
    except BaseException:
        os.unlink(name)
        raise


def _publish(name: str, path: Path) -> Path:
    """Renames the file to the first such name that is free, and never over what is there."""
    number = 1
    while True:
        free = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        try:
            os.close(os.open(free, os.O_CREAT | os.O_EXCL, 0o600))  # it is ours now, and empty for a moment
        except FileExistsError:
            number += 1
        else:
            os.replace(name, free)
            return free


# -- out -------------------------------------------------------------------------------------------------


def _write(record: Record, file: Any) -> None:
    told = {f.name: getattr(record, f.name) for f in fields(record) if f.name not in _APART}
    told["fault"] = {name: _shortened(value) for name, value in asdict(record.fault).items()}
    for name in ("beginning", "seeded"):
        told[name] = None if told[name] is None else _beginning_out(told[name])
    told["versions"] = dict(record.versions)
    arrays = io.BytesIO()
    named: dict[str, Any] = {f"action_{i}": action for i, action in enumerate(record.actions)}
    np.savez_compressed(arrays, kinds=record.kinds, **named)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("record.json", json.dumps({"format": FORMAT, "version": VERSION, **told}, indent=2))
        archive.writestr("actions.npz", arrays.getvalue())
        for name, pickle in record.pickles.items():
            archive.writestr(_PICKLES + name, pickle)
        _check_sizes(archive)


def _shortened(value: Any) -> Any:
    """Of what is too long the end: tracebacks tell most there."""
    return f"[cut] ...{value[-_LONGEST:]}" if isinstance(value, str) and len(value) > _LONGEST else value


def _beginning_out(beginning: Beginning) -> dict[str, Any]:
    told = {f.name: getattr(beginning, f.name) for f in fields(beginning)}
    if beginning.pickled_options is not None:
        told["pickled_options"] = base64.b64encode(beginning.pickled_options).decode()
    return told


# -- in --------------------------------------------------------------------------------------------------


def _read(path: Path, archive: zipfile.ZipFile) -> Record:
    _check_sizes(archive)
    told = json.loads(archive.read("record.json"))
    if not isinstance(told, dict) or told.pop("format", None) != FORMAT:
        raise ValueError(f"its record.json says nothing of a {FORMAT}")
    if (version := told.pop("version", None)) != VERSION:
        raise ValueError(f"it is of version {version!r}, and this remuda knows version {VERSION}: update remuda")
    kinds, *actions = _read_arrays(archive.read("actions.npz"))
    _check_arrays(kinds, actions)
    told = {name: _checked(name, told.get(name), types) for name, types in _TYPES.items()}
    told_fault = {"stack": "", **told["fault"]}  # which older ones have not
    fault = {name: _checked(f"fault.{name}", told_fault.get(name), types) for name, types in _FAULT_TYPES.items()}
    names = [name for name in archive.namelist() if name.startswith(_PICKLES)]
    return Record(
        path=path,
        kinds=kinds,
        actions=tuple(actions),
        pickles={name.removeprefix(_PICKLES): archive.read(name) for name in names},
        **{
            **told,
            "fault": RecordedFault(**fault),
            "beginning": _beginning_in("beginning", told["beginning"]),
            "seeded": _beginning_in("seeded", told["seeded"]),
            "env_ids": _all("env_ids", told["env_ids"], int),
            "sys_path": _all("sys_path", told["sys_path"], str),
        },
    )


def _open(data: bytes) -> zipfile.ZipFile:
    """Raises ValueError when it does not end as ours do, or lists more parts than any of ours can have."""
    if len(data) < _END.size:
        raise ValueError("it is cut short")
    mark, _, _, _, _, size, _, _ = _END.unpack(data[-_END.size :])
    if mark != b"PK\x05\x06" or size > _LARGEST_DIRECTORY:
        raise ValueError("it is no archive, or one of too many parts")
    return zipfile.ZipFile(io.BytesIO(data))


def _check_sizes(archive: zipfile.ZipFile, taken: int = 0) -> None:
    """Before anything is unpacked, for which a part's size is a promise that is kept. `taken`: bytes that were."""
    parts = archive.infolist()
    if any(part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for part in parts):
        raise ValueError("expected parts that are deflated, got another kind of compression")
    if (size := taken + sum(part.file_size for part in parts)) > _LARGEST:
        raise ValueError(f"expected a file that unpacks to at most {_LARGEST} bytes, got one of {size}")
    text = max((part.file_size for part in parts if part.filename == "record.json"), default=0)
    if text > _LARGEST_TEXT:
        raise ValueError(f"expected at most {_LARGEST_TEXT} bytes of record.json, got {text}")


def _read_arrays(data: bytes) -> list[Any]:
    """The kinds, and the actions: these are an archive within the archive."""
    with _open(data) as packed:
        _check_sizes(packed, len(data))
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return [arrays[name] for name in ("kinds", *_action_names(arrays.files))]


def _action_names(names: Sequence[str]) -> list[str]:
    return [f"action_{i}" for i in range(len(names) - 1)]


def _check_arrays(kinds: Any, actions: Sequence[Any]) -> None:
    if kinds.dtype != np.uint8 or kinds.ndim != 1 or (kinds > _core.Entry.RESTORED.value).any():
        raise ValueError("its kinds are not those of entries")
    if any(a.ndim < 1 or len(a) != len(kinds) for a in actions):
        raise ValueError("its actions are not one row for each entry")


def _beginning_in(where: str, told: dict[str, Any] | None) -> Beginning | None:
    if told is None:
        return None
    pickled = told.get("pickled_options")
    if isinstance(pickled, str):
        told = {**told, "pickled_options": base64.b64decode(pickled, validate=True)}
    return check_beginning(where, told)


def check_beginning(where: str, told: Mapping[str, Any]) -> Beginning:
    """What a worker has noted, or a file. Raises ValueError for what cannot be."""
    values = {
        name: _checked(f"{where}.{name}", told.get(name, default), types)
        for name, (types, default) in _BEGINNING_TYPES.items()
    }
    return Beginning(**values)


def _checked(where: str, value: Any, types: tuple[type, ...]) -> Any:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        expected = " or ".join("null" if t is type(None) else t.__name__ for t in types)
        raise ValueError(f"expected {expected}, got {value!r} at {where}")
    return value


def _all(where: str, values: Sequence[Any], of: type) -> tuple[Any, ...]:
    return tuple(_checked(f"{where}[{i}]", value, (of,)) for i, value in enumerate(values))


_NONE = type(None)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "env_id": (int,),
    "worker": (int,),
    "num_workers": (int,),
    "env_ids": (list,),
    "pid": (int, _NONE),
    "backend": (str,),
    "autoreset": (str,),
    "episode": (int, _NONE),
    "step": (int,),
    "fault": (dict,),
    "beginning": (dict, _NONE),
    "seeded": (dict, _NONE),
    "entries": (int,),
    "calls": (int,),
    "observation_space": (str,),
    "action_space": (str,),
    "spec_id": (str, _NONE),
    "versions": (dict,),
    "factory": (str,),
    "sys_path": (list,),
    "cwd": (str,),
    "when": (str,),
}
_FAULT_TYPES: Mapping[str, tuple[type, ...]] = {
    "kind": (str,),
    "operation": (str,),
    "error": (str,),
    "type_name": (str,),
    "message": (str,),
    "traceback": (str,),
    "exitcode": (int, _NONE),
    "deadline": (int, float, _NONE),
    "stack": (str,),
}
_BEGINNING_TYPES: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "seed": ((int, _NONE), None),
    "options": ((dict, _NONE), None),
    "pickled_options": ((bytes, _NONE), None),
    "options_lost": ((str,), ""),
    "random": ((dict, _NONE), None),
    "random_unknown": ((str,), ""),
}


def _text(error: Exception) -> str:
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) and error.args else str(error)
