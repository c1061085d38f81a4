"""Writes and reads the file of a crash record: a zip. No code in it is run when it is loaded.

record.json      texts and numbers
kinds.npy        the kinds of operations
action_0.npy     the actions: a plain array for each leaf of the action space
pickles/NAME     pickled code, as bytes that are not unpickled here
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from remuda import _core
from remuda._crash.record import CrashRecord, EpisodeStart, RecordedFault
from remuda.errors import RecordError

FORMAT, VERSION = "remuda crash record", 1

# Limits in bytes for a file, for its unpacked contents, and for its text. A small file can unpack to a large one.
_LARGEST, _LARGEST_TEXT = 1 << 28, 1 << 24
_LARGEST_DIRECTORY = 1 << 16
_END = struct.Struct("<4s4H2LH")  # the last bytes of a zip, which state the size of its list of files.
_LONGEST = 1 << 20  # the limit in characters for one text of the env or its worker
_PICKLES = "pickles/"

_APART = ("path", "kinds", "actions", "pickles")  # the fields of a record that its JSON does not contain.
_NESTED = (RecordedFault, EpisodeStart)  # the types of the fields that are objects in the JSON


def printable(text: str) -> str:
    """Replaces control characters and invisible ones by escapes, except newlines and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def load_record(path: str | os.PathLike[str]) -> CrashRecord:
    """Reads a crash record. No code in it is run.

    Args:
        path: The path of the file, which `Fault.record` and errors have.

    Returns: The record, checked and unpacked.

    Raises:
        RecordError: The file is not a crash record, is damaged, or was written by a later version.
        OSError: The file cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)  # outside the `try`: an OSError of reading does not mean damaged data
    try:
        if len(data) > _LARGEST:
            raise ValueError(f"expected a file of at most {_LARGEST} bytes, got a larger one")
        with _open(data) as archive:
            return _read(path, archive)
    except Exception as error:  # `zipfile` and NumPy raise many different ones for files that are cut short or changed
        raise RecordError(f"expected a crash record, got {printable(str(path))}: {printable(_text(error))}") from error


def save_record(record: CrashRecord) -> Path:
    """Writes a record into the directory of `record.path`, completely or not at all. An existing file is kept.

    Returns: The path of the file.
    Only its owner may read it, because tracebacks and factories may contain secrets of the program.

    Raises:
        OSError: The file cannot be written.
        ValueError: The record is too large to be loaded again.
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
    """Renames a file to `path`, or to `path` with a number if `path` exists. No existing file is replaced."""
    number = 1
    while True:
        free = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        try:
            os.close(os.open(free, os.O_CREAT | os.O_EXCL, 0o600))  # reserves the name with an empty file
        except FileExistsError:
            number += 1
        else:
            os.replace(name, free)
            return free


# -- out -------------------------------------------------------------------------------------------------


def _write(record: CrashRecord, file: Any) -> None:
    stated = {f.name: getattr(record, f.name) for f in fields(record) if f.name not in _APART}
    text = json.dumps({"format": FORMAT, "version": VERSION, **stated}, indent=2, default=_as_json)
    arrays = {"kinds": record.kinds, **{f"action_{i}": action for i, action in enumerate(record.actions)}}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("record.json", text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as part:
                np.lib.format.write_array(part, array, allow_pickle=False)
        for name, pickle in record.pickles.items():
            archive.writestr(_PICKLES + name, pickle)
        _check_sizes(archive)


def _as_json(value: Any) -> Any:
    """Converts a part of a record to a type that JSON has."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, RecordedFault):
        return {name: _shortened(part) for name, part in vars(value).items()}
    return vars(value) if isinstance(value, EpisodeStart) else dict(value)


def _shortened(value: Any) -> Any:
    """Cuts off the beginning of a text that is too long, because a traceback is most useful at its end."""
    return f"[cut] ...{value[-_LONGEST:]}" if isinstance(value, str) and len(value) > _LONGEST else value


# -- in --------------------------------------------------------------------------------------------------


def _read(path: Path, archive: zipfile.ZipFile) -> CrashRecord:
    _check_sizes(archive)
    stated = json.loads(archive.read("record.json"))
    if not isinstance(stated, dict) or stated.get("format") != FORMAT:
        raise ValueError(f"its record.json says nothing of a {FORMAT}")
    if (version := stated.get("version")) != VERSION:
        raise ValueError(f"it is of version {version!r}, and this remuda supports version {VERSION}: update remuda")
    num_leaves = sum(name.startswith("action_") for name in archive.namelist())
    kinds, *actions = (_read_array(archive, name) for name in ("kinds", *(f"action_{i}" for i in range(num_leaves))))
    _check_arrays(kinds, actions)
    names = [name for name in archive.namelist() if name.startswith(_PICKLES)]
    return CrashRecord(
        path=path,
        kinds=kinds,
        actions=tuple(actions),
        pickles={name.removeprefix(_PICKLES): archive.read(name) for name in names},
        **_checked_fields(CrashRecord, stated),
    )


def _open(data: bytes) -> zipfile.ZipFile:
    """Opens a zip. Raises ValueError if its end is invalid, or if its list of files is too large for a record."""
    if len(data) < _END.size:
        raise ValueError("it is cut short")
    mark, _, _, _, _, size, _, _ = _END.unpack(data[-_END.size :])
    if mark != b"PK\x05\x06" or size > _LARGEST_DIRECTORY:
        raise ValueError("it is no archive, or one of too many parts")
    return zipfile.ZipFile(io.BytesIO(data))


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Checks the stated sizes of a zip before unpacking. `zipfile` never unpacks more than the stated size."""
    parts = archive.infolist()
    if any(part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for part in parts):
        raise ValueError("expected parts that are deflated, got another kind of compression")
    if (size := sum(part.file_size for part in parts)) > _LARGEST:
        raise ValueError(f"expected a file that unpacks to at most {_LARGEST} bytes, got one of {size}")
    text = max((part.file_size for part in parts if part.filename == "record.json"), default=0)
    if text > _LARGEST_TEXT:
        raise ValueError(f"expected at most {_LARGEST_TEXT} bytes of record.json, got {text}")


def _read_array(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(f"{name}.npy") as part:
        return np.lib.format.read_array(part, allow_pickle=False)


def _check_arrays(kinds: Any, actions: Sequence[Any]) -> None:
    if kinds.dtype != np.uint8 or kinds.ndim != 1 or (kinds > _core.Entry.RESTORED.value).any():
        raise ValueError("its kinds are not those of entries")
    if any(a.ndim < 1 or len(a) != len(kinds) for a in actions):
        raise ValueError("its actions are not one row for each entry")


def check_start(where: str, stated: Mapping[str, Any]) -> EpisodeStart:
    """Checks the data of an episode's start, from a worker's log or a file. Raises ValueError if it is invalid."""
    return EpisodeStart(**_checked_fields(EpisodeStart, stated, f"{where}."))


def _checked_fields(kind: type, stated: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Checks values against the types of a dataclass's fields. Values of fields with a default may be missing."""
    hints = get_type_hints(kind)
    given = {f.name: stated.get(f.name, None if f.default is MISSING else f.default) for f in fields(kind)}
    return {name: _checked(where + name, value, hints[name]) for name, value in given.items() if name not in _APART}


def _checked(where: str, value: Any, hint: Any) -> Any:
    """Converts a value from JSON to the type `hint`, which may be another dataclass."""
    kinds: tuple[Any, ...] = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    types = [json_type for kind in kinds for json_type in _json_types(kind)]
    if bytes in types and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if type(value) not in types:
        expected = " or ".join("null" if t is type(None) else t.__name__ for t in types)
        raise ValueError(f"expected {expected}, got {value!r} at {where}")
    if value is not None and kinds[0] in _NESTED:
        return kinds[0](**_checked_fields(kinds[0], value, f"{where}."))
    if type(value) is list:
        return tuple(_checked(f"{where}[{i}]", item, get_args(kinds[0])[0]) for i, item in enumerate(value))
    return value


def _json_types(kind: Any) -> tuple[type, ...]:
    if kind in _NESTED or get_origin(kind) is Mapping:
        return (dict,)
    if get_origin(kind) is tuple:
        return (list,)
    return (int, float) if kind is float else (kind,)


def _text(error: Exception) -> str:
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) and error.args else str(error)
