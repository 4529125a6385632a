"""The compiled kernel, kept as machine code: numba compiles it once a machine, the file is mapped from then on.

    kernel.py --numba, 3 s, once a machine--> <key>.code --mmap, under 1 ms--> a function of whole numbers

numba's own cache would do, but loading numba and a kernel from there costs a process a second and 120 MB, and loading
an object file by LLVM alone 0.1 s and 50 MB. So the file holds what a linker would have made: code that refers to
nothing outside itself. The key names everything that the code depends on, so a file never needs to be looked into; a
hash in front of it tells a damaged one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import logging
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from manifests import storage

logger = logging.getLogger(__name__)

Kernel = Callable[..., None]

_HASH_BYTES = 32
NUM_ARGUMENTS = 13  # of kernel.py's `fill`, which may import this; the reverse would import numba
# What was mapped or compiled lives as long as the process.
_kept_alive: list[Any] = []

# How code begins: with a jump to the kernel, so that its address is the code's own.
_JUMP = {"x86_64": "jmp", "aarch64": "b"}
# Directives that make further sections, or names that others could see: without them all constants lie
# beside the code, and the assembler itself resolves every reference.
_DIRECTIVES = (
    ".section",
    ".globl",
    ".hidden",
    ".weak",
    ".comm",
    ".type",
    ".size",
    ".file",
    ".cfi_",
    ".addrsig",
)
# ARM names a far place in two steps, by its page and in it; one step reaches a place as near as ours.
_ARM_NEAR = (
    (r"adrp(\s+\w+, \.L)", r"adr\1"),
    (r"add\s+(\w+), \1, :lo12:\.L\w+", ""),
    (r"\[(\w+), :lo12:\.L\w+\]", r"[\1]"),
)


def kept_kernel(stored: str, column: str) -> Kernel | None:
    """kernel.py's `fill` for these types, as machine code that runs without the interpreter's lock.

    None where this machine has not compiled it yet. stored: "uint16" or "uint32"; column: "int32" or "int64". Every
    argument of the function must be a whole number.
    """
    code = _read(_key(stored, column))
    if code is None:
        return None
    try:
        return _mapped(code)
    except OSError:  # `compiled_kernel` meets it as well, and says so
        return None


def compiled_kernel(stored: str, column: str) -> Kernel:
    """The same, compiled now, which takes seconds, and kept for the next time."""
    # In a process of its own: this one needs neither numba nor LLVM, which ends a process for what it cannot assemble.
    # It keeps the code itself, since it may well outlive a program that only looks at a batch.
    command = [sys.executable, "-m", "loader.machine_code", stored, column, _key(stored, column)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, check=False)
    why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode == 0:
        # Whatever else prints when Python starts, or numba when it is debugged, is not to be run.
        code = _unsealed(done.stdout)
        try:
            if code is None:
                raise OSError("something else than the compiler wrote to its output")
            mapped = _mapped(code)
        except OSError as error:  # a system that lets no process map code of its own
            why = str(error)
        else:
            if _read(_key(stored, column)) is None:
                logger.warning(
                    "the loader's kernel is compiled by each process, some 3 s: none of %s can be written; set"
                    " NUMBA_CACHE_DIR to a folder that can",
                    ", ".join(map(str, _folders())),
                )
            return mapped
    logger.warning(
        "the loader's kernel cannot be kept as machine code on this %s (%s); each process will compile it anew, and"
        " make its batches by numpy until then",
        os.uname().machine,
        why,
    )
    from loader import kernel

    _, _, function = kernel.compiled(stored, column)
    _kept_alive.append(function)
    return _callable(function.address)


def _linked(stored: str, column: str) -> bytes:
    """Machine code of the kernel, entered at its first byte. Raises an error of any kind where there can be none."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it publishes no types

    from loader import kernel

    ir, name, _ = kernel.compiled(stored, column)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="small",
    )
    return _assembled(llvm, target, target.emit_assembly(llvm.parse_assembly(ir)), name)


def _assembled(llvm: Any, target: Any, assembly: str, name: str) -> bytes:
    """`_linked`, from a target's assembly."""
    processor = target.triple.split("-")[0]
    if processor == "aarch64":
        for pattern, near in _ARM_NEAR:
            assembly = re.sub(pattern, near, assembly)
    lines = [f"{_JUMP[processor]} {name}", *assembly.replace("@PLT", "").splitlines()]
    kept = "\n".join(line for line in lines if not line.strip().startswith(_DIRECTIVES))
    quoted = "".join(f"\\{byte:02X}" for byte in kept.encode())
    whole = target.emit_object(llvm.parse_assembly(f'target triple = "{target.triple}"\nmodule asm "{quoted}"'))
    found = llvm.ObjectFileRef.from_data(whole).sections()
    sections = {section.name().decode(): section.data() for section in found if section.size()}
    if any(section.startswith(".rel") for section in sections):
        raise ValueError("the kernel refers to something outside itself")
    return bytes(sections[".text"])


def _mapped(code: bytes) -> Kernel:
    if not hasattr(os, "memfd_create"):  # a Python built for an older libc than the one here, as uv's and conda's are
        pages = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        pages.write(code)
        return _kept_alive_at(pages)
    # A file without a name, since the one on disk may lie where nothing may be run from.
    descriptor = os.memfd_create("kernel", os.MFD_CLOEXEC)
    try:
        if os.write(descriptor, code) != len(code):
            raise OSError(errno.EFBIG, "a limit on the size of files (ulimit -f) is below the kernel's")
        pages = mmap.mmap(descriptor, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    finally:
        os.close(descriptor)
    return _kept_alive_at(pages)


def _kept_alive_at(pages: mmap.mmap) -> Kernel:
    _kept_alive.append(pages)
    return _callable(np.frombuffer(pages, dtype=np.uint8).ctypes.data)


def _callable(address: int) -> Kernel:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * NUM_ARGUMENTS)(address)


def _key(stored: str, column: str) -> str:
    """Of the sources, the compiler, the processor and the types. Costs 0.2 ms: it asks neither numba nor LLVM."""
    here = Path(__file__).parent
    sources = [(here / name).read_bytes() for name in ("kernel.py", "columns.py", "machine_code.py")]
    system = os.uname()
    facts = [system.sysname, system.machine, *_installed(), *_processor(), stored, column]
    return hashlib.sha256(b"\0".join([*sources, *(fact.encode() for fact in facts)])).hexdigest()


def _installed() -> list[str]:
    """When the compiler was installed: another version compiles anew. Python's own search would cost 0.5 ms."""
    found = []
    for name in ("numba", "llvmlite"):
        for folder in sys.path:
            with contextlib.suppress(OSError):  # not in this one
                found.append(f"{name} {Path(folder, name, '__init__.py').stat().st_mtime_ns}")
                break
    return found


def _processor() -> list[str]:
    """What the system says of the first processor's kind and features; nothing where it says nothing."""
    of_kind = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as stream:
        # The system writes a processor's lines when they are read: of 200 processors, only the first one's.
        lines = stream.read(8192).split("\n\n")[0].splitlines()
        return [line for line in lines if line.startswith(of_kind)]
    return []


def _folders() -> list[Path]:
    """Where the code may be kept, the best place first: where numba keeps its own."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(named) if named else Path(__file__).parent / "__pycache__"]
    with contextlib.suppress(RuntimeError):  # a user without a home, as a container's may be
        folders.append(Path.home() / ".cache" / "shardmill")
    return folders


def _read(key: str) -> bytes | None:
    for folder in _folders():
        with contextlib.suppress(OSError):  # not here: the next folder, or the compiler
            path = folder / f"kernel-{key}.code"
            # A folder that several users share, as one in /tmp is: code of a stranger's is not run.
            if path.stat().st_uid not in (os.getuid(), 0, Path(__file__).stat().st_uid):
                continue
            code = _unsealed(path.read_bytes())
            if code is not None:
                return code
    return None


def _write(key: str, code: bytes) -> None:
    for folder in _folders():
        with contextlib.suppress(OSError):  # a folder that is not ours: the next one, or the compiler each time
            storage.write_bytes(str(folder / f"kernel-{key}.code"), _sealed(code))
            return


def _sealed(code: bytes) -> bytes:
    return hashlib.sha256(code).digest() + code


def _unsealed(data: bytes) -> bytes | None:
    """The code, where `data` is what `_sealed` gave."""
    code = data[_HASH_BYTES:]
    return code if _sealed(code) == data else None


def _main(stored: str, column: str, key: str) -> None:
    code = _linked(stored, column)
    _write(key, code)
    sys.stdout.buffer.write(_sealed(code))


if __name__ == "__main__":
    _main(*sys.argv[1:])
