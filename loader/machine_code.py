"""The compiled kernel, kept as an object file: numba compiles it once a machine, LLVM alone loads it from then on.

    kernel.py --numba, 3 s, once a machine--> <key>.o --llvmlite, 0.02 s of CPU time--> a function of whole numbers

numba's own cache would do, but loading numba and a kernel from there costs a process a second and 120 MB; this costs
50 MB, nearly all of it LLVM itself. The key names everything that the code depends on, so a file never needs to be
looked into; a hash in front of it tells a damaged one.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from manifests import storage

_HASH_BYTES = 32
_NUM_ARGUMENTS = 13
# Machine code lives as long as the engine that loaded it.
_engines: list[Any] = []


def kernel(stored: str, column: str) -> Callable[..., None]:
    """kernel.py's `fill` for these types, as machine code that runs without the interpreter's lock.

    stored: "uint16" or "uint32"; column: "int32" or "int64". Every argument must be a whole number.
    """
    import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it publishes no types

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    processor, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(cpu=processor, features=features, opt=3, jit=True)

    here = Path(__file__).parent
    sources = [(here / name).read_bytes() for name in ("kernel.py", "columns.py")]
    versions = [version("numba"), version("llvmlite"), llvm.get_process_triple(), processor, features, stored, column]
    key = hashlib.sha256(b"\0".join([*sources, *(text.encode() for text in versions)])).hexdigest()
    code = _read(key)
    if code is None:
        code = _compiled(llvm, machine, stored, column)
        _write(key, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * _NUM_ARGUMENTS)(engine.get_function_address("fill"))


def _compiled(llvm: Any, machine: Any, stored: str, column: str) -> bytes:
    from loader import kernel

    words, name = kernel.compiled(stored, column)
    module = llvm.parse_assembly(words.replace(f"@{name}(", "@fill(").replace(f'@"{name}"(', "@fill("))
    needed = [of.name for of in module.functions if of.is_declaration and not of.name.startswith("llvm.")]
    # A missing symbol would end the process when the code is loaded. LLVM makes memset and memcpy of loops later on.
    assert not needed, f"the kernel is not to need {needed}"
    return bytes(machine.emit_object(module))


def _folders() -> list[Path]:
    """Where the code may be kept, the best place first: where numba keeps its own."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    beside, of_user = Path(__file__).parent / "__pycache__", Path.home() / ".cache" / "shardmill"
    return [Path(named), of_user] if named else [beside, of_user]


def _read(key: str) -> bytes | None:
    for folder in _folders():
        with contextlib.suppress(OSError):  # not here: the next folder, or the compiler
            data = (folder / f"kernel-{key}.o").read_bytes()
            if hashlib.sha256(data[_HASH_BYTES:]).digest() == data[:_HASH_BYTES]:
                return data[_HASH_BYTES:]
    return None


def _write(key: str, code: bytes) -> None:
    for folder in _folders():
        with contextlib.suppress(OSError):  # a folder that is not ours: the next one, or the compiler each time
            storage.write_bytes(str(folder / f"kernel-{key}.o"), hashlib.sha256(code).digest() + code)
            return
