"""Describes the program that owns the pool to its workers: its `__main__`, and modules that are not on its path.

A worker never runs the program's main module as a whole, because a script without a guard would train again. A name of
`__main__` is what came with the factories, by value. If it has not come, the worker runs the statements that define it.
"""

from __future__ import annotations
import __future__

import ast
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from remuda._system.interpreter import arguments, globals_of_main, import_path, importing_main
from remuda._wire.by_value import travelled

_WAY_OUT = "move it into a module, or use start_method='fork'"
_CELLS = "In"  # the list of a notebook's cells that were run, a global of its `__main__`


@dataclass(frozen=True)
class Program:
    """The program's `__main__` and modules.

    Attributes:
        file: The path of the script; None: a notebook, `python -c`, or standard input.
        module: The module's name, for `python -m`; else None.
        package: The package of the module, for relative imports; else None.
        cells: The code of a program without a file; empty if it is unknown.
        modules: By name, the files of imported modules that workers do not find on the import path; None: no file.
    """

    file: str | None
    module: str | None
    package: str | None
    cells: Sequence[str] = ()
    modules: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def current(cls) -> Program:
        """Returns the description of this process's program."""
        names = globals_of_main()
        file = names.get("__file__")
        if not isinstance(file, str) or file.startswith("<"):  # "<stdin>"
            file = None
        return cls(
            file=None if file is None else _absolute(file),
            module=getattr(names.get("__spec__"), "name", None),
            package=names.get("__package__"),
            cells=_cells(names) if file is None else (),
            modules=_modules_off_the_path(),
        )

    def adopt(self) -> None:
        """Gives this worker the program's `__main__` and modules."""
        sys.modules["__main__"] = sys.modules["__mp_main__"] = _Main(self)
        if self.modules:
            sys.meta_path.append(_ByFile(self.modules))

    def statements(self) -> list[ast.stmt]:
        """Parses the code and returns its statements. A file that is gone, or a cell that is no Python, has none."""
        codes: Sequence[str | bytes] = self.cells
        if self.file is not None:
            codes = [Path(self.file).read_bytes()] if os.path.isfile(self.file) else []
        return [statement for code in codes for statement in _parsed(code)]


def _cells(names: Mapping[str, Any]) -> list[str]:
    if arguments()[:1] == ["-c"]:
        options = iter(sys.orig_argv[1:])
        next((option for option in options if option[0] == "-" and option[1:2] != "-" and option[-1] == "c"), None)
        return list(options)[:1]
    cells = names.get(_CELLS)
    return [cell for cell in cells if isinstance(cell, str)] if isinstance(cells, list) else []


def _parsed(code: str | bytes) -> list[ast.stmt]:
    try:
        return ast.parse(code).body
    except SyntaxError:
        return []


def _modules_off_the_path() -> dict[str, str | None]:
    """Returns the files of top-level modules that were not imported from the path; None for a module without a file."""
    path = set(map(_absolute, import_path()))
    files = dict(_files())
    return {name: file for name, file in files.items() if file is None or os.path.dirname(_root(file)) not in path}


def _files() -> Iterator[tuple[str, str | None]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and "." not in name and name not in {"__main__", "__mp_main__"}:
            spec = vars(module).get("__spec__")
            if spec is None:
                yield name, None
            elif isinstance(spec, ModuleSpec) and spec.has_location and spec.origin:
                yield name, _absolute(spec.origin)


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:  # the working directory was removed
        return path


def _root(file: str) -> str:
    """Returns the folder of a package, or the file of a module."""
    return os.path.dirname(file) if os.path.basename(file).startswith("__init__.") else file


class _ByFile(MetaPathFinder):
    """Finds modules by their files, after all other finders. Raises for a module that a worker cannot have."""

    def __init__(self, modules: Mapping[str, str | None]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        file = self._modules[name]
        if file is None or not os.path.isfile(file):
            why = "the program made it without a file" if file is None else f"its file {file} is gone"
            text = f"No module named {name!r} in a worker: {why}; give it one on sys.path, or use start_method='fork'"
            raise ModuleNotFoundError(text, name=name)
        return importlib.util.spec_from_file_location(name, file)


class _Main(ModuleType):
    """The `__main__` of a worker. It has the file and package of the program's, and defines a name when it is used."""

    def __init__(self, program: Program) -> None:
        super().__init__("__main__")
        self.__package__ = program.package
        if program.file is not None:
            self.__file__ = program.file
        if program.module is not None:
            self.__spec__ = ModuleSpec(program.module, None, origin=program.file)
        self.__definitions = _Definitions(program, vars(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not self.__definitions.define(name):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return vars(self)[name]

    def __repr__(self) -> str:  # `pickle` writes it into its error about a missing name
        return f"<module '__main__' of a worker: {self.__definitions.source}; for any other name, {_WAY_OUT}>"


class _Definitions:
    """Defines names of the program in a namespace, one by one.

    A name is defined by top-level imports, functions, classes and assignments, also in `try` and `if`. Not by loops and
    `with` blocks, and not by the code under `if __name__ == "__main__"`. A statement is run at most once.
    """

    def __init__(self, program: Program, namespace: dict[str, Any]) -> None:
        self._program, self._namespace = program, namespace
        self._statements: dict[str, list[ast.stmt]] | None = None  # by name; None: the code has not been read
        self._begun: set[str] = set()  # names that are defined, or are being defined.
        self._run_before: set[ast.stmt] = set()
        self._flags = 0  # of the compiler, from `__future__`
        self._lock = threading.RLock()

    @property
    def source(self) -> str:
        """Where the names of the namespace come from, for an error."""
        if self._program.file is not None:
            return f"it has the top-level definitions of {self._program.file}"
        if self._program.cells:
            return "it has the top-level definitions of the program"
        return "it has what the factories of envs refer to"

    def define(self, name: str) -> bool:
        """Defines a name, and the names that its definition uses. Returns whether the namespace has it now.

        Raises ImportError if its definition fails.
        """
        with self._lock:
            if name not in self._namespace and name not in self._begun:
                self._begun.add(name)
                try:
                    self._define(name)
                except BaseException:
                    self._begun.remove(name)  # the next use raises the error again
                    raise
            return name in self._namespace

    def _define(self, name: str) -> None:
        try:
            self._namespace[name] = travelled.find(name)
            return
        except KeyError:
            pass
        statements = self._read()
        for statement in statements.get(name) or statements.get("*", ()):  # `from module import *`
            if statement in self._run_before:
                continue
            self._run_before.add(statement)
            now, later = _used(statement)
            for used in now:
                self.define(used)
            self._run(name, statement)
            for used in later:  # in the bodies of functions, which may never be called
                try:
                    self.define(used)
                except ImportError:
                    pass  # a call of the function raises NameError

    def _read(self) -> Mapping[str, Sequence[ast.stmt]]:
        if self._statements is None:
            self._statements = {}
            statements = self._program.statements()
            for statement in statements:
                if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                    self._flags |= sum(getattr(__future__, alias.name).compiler_flag for alias in statement.names)
            for statement in _definitions(statements):
                for name in dict.fromkeys(_bound(statement)):
                    if isinstance(statement, _WHOLE):
                        self._statements[name] = []  # the statement does not depend on earlier values of the name
                    self._statements.setdefault(name, []).append(statement)
        return self._statements

    def _run(self, name: str, statement: ast.stmt) -> None:
        file = self._program.file or "<the program's code>"
        try:
            code = compile(ast.Module([statement], []), file, "exec", self._flags, dont_inherit=True)
            with importing_main():
                exec(code, self._namespace)
        except Exception as error:
            raise ImportError(
                f"cannot define {name!r} of {file} in a worker: line {statement.lineno} raised "
                f"{type(error).__name__}: {error}; {_WAY_OUT}"
            ) from error


_WHOLE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def _definitions(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements that define names. An `if` or `try` has nothing else in its blocks then."""
    for statement in statements:
        if isinstance(statement, (*_WHOLE, *_ASSIGNMENTS)):
            yield statement
        elif isinstance(statement, ast.Try) or (
            isinstance(statement, ast.If) and "__name__" not in ast.unparse(statement.test)
        ):
            for block, part, inner in _blocks(statement):
                setattr(block, part, [*_definitions(inner)] or [ast.copy_location(ast.Pass(), statement)])
            yield statement


def _blocks(statement: ast.If | ast.Try) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """Yields the blocks of a statement: the node and its attribute that has the block, and the statements in it."""
    for node in (statement, *getattr(statement, "handlers", ())):
        for part in ("body", "orelse", "finalbody"):
            if inner := getattr(node, part, None):
                yield node, part, inner


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yields the names that a definition binds."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Import() | ast.ImportFrom():
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0]
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id
        case ast.If() | ast.Try():
            for _, _, inner in _blocks(statement):
                for one in inner:
                    yield from _bound(one)


def _used(node: ast.AST) -> tuple[set[str], set[str]]:
    """Returns the names that a statement uses when it runs, and those that its functions use when they are called."""
    now, later = set[str](), set[str]()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            now.add(child.id)
        first, second = _used(child)
        is_body = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and (
            child in node.body if isinstance(node.body, list) else child is node.body
        )
        (later if is_body else now).update(first)
        later |= second
    return now, later
