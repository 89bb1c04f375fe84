"""Every kernel that the ops list, and one hash of the files that they stand in."""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from conductor.errors import StartError
from conductor_kernels.arguments import known
from conductor_kernels.kernelspec import Kernel

OPS = "conductor_kernels.ops"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,56}")
"""A file's name in a bundle has 64 characters, `.cubin` among them."""


def listed(package: str = OPS) -> dict[str, Kernel]:
    """Name -> kernel, of all modules of the package. Imports them, so it takes torch and Triton.

    Raises `StartError` for a name that is there twice, and for a kernel whose description does not
    fit its function.
    """
    return catalogued(
        kernel
        for module in _modules(package)
        for kernel in getattr(import_module(module), "KERNELS", ())
    )


def catalogued(kernels: Iterable[Kernel]) -> dict[str, Kernel]:
    """The same of kernels that are at hand. One that two modules list is there once."""
    found: dict[str, Kernel] = {}
    for kernel in kernels:
        if found.get(kernel.name, kernel) is not kernel:
            raise StartError(f"two kernels are called {kernel.name}: give one another name")
        if problem := _problem(kernel):
            raise StartError(f"the kernel {kernel.name} cannot be compiled: {problem}")
        found[kernel.name] = kernel
    return dict(sorted(found.items()))


def source_hash(package: str = OPS) -> str:
    """sha256 of the names and contents of the package's files, lower-case hex.

    Machine code is started by arguments in an order that only those files know.
    """
    digest = hashlib.sha256()
    for path in _files(package):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _problem(kernel: Kernel) -> str:
    names: Sequence[str] = kernel.function.arg_names
    if not _NAME.fullmatch(kernel.name):
        return "its name is not made of up to 57 small letters, digits and _"
    if list(kernel.signature) != [name for name in names if name not in kernel.constants]:
        return "its signature and constants are not the function's arguments, in order"
    if lost := [*kernel.constants.keys() - set(names), *kernel.divisible - kernel.signature.keys()]:
        return f"{lost[0]} is no argument of it"
    unknown = [kind for kind in kernel.signature.values() if not known(kind)]
    return f"nothing of type {unknown[0]} can be handed to it" if unknown else ""


def _modules(package: str) -> list[str]:
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return [package]
    found = pkgutil.iter_modules(spec.submodule_search_locations, f"{package}.")
    return sorted(module.name for module in found)


def _files(package: str) -> list[Path]:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise StartError(f"{package} is not installed: install the appliance again")
    origin = Path(spec.origin)
    return sorted(origin.parent.glob("*.py")) if spec.submodule_search_locations else [origin]
