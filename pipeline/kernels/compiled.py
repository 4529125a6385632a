"""How every kernel is compiled: without Python's lock held, and kept on disk until any kernel source changes.

numba's own cache looks at the one file a kernel stands in. A kernel has code and constants of other files inlined, so
after a `git pull` that touched only those it would run the old machine code: wrong, or past the end of an array. So a
kernel's name in the cache carries a fingerprint of all kernel sources; what an older source left is not found again.

The cache is in __pycache__ beside the source, else where NUMBA_CACHE_DIR says, else in the user's own cache folder.
"""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def _sources_fingerprint() -> str:
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted([*package.glob("kernels/*.py"), *package.glob("dedup/*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call, or load it from the cache."""
    function.__qualname__ += f"_{_sources_fingerprint()}"
    return numba.njit(nogil=True, cache=True)(function)


def lean(function: Callable[P, R]) -> Callable[P, R]:
    """Like `kernel`, for what makes no array: without numba's counting of references to arrays, which is two atomic
    instructions for each array that is taken out of a tuple or handed on, more than the work of an inner loop.
    """
    function.__qualname__ += f"_{_sources_fingerprint()}"
    return _compile(function)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Like `lean`, for inner loops: the body goes into each caller, since a call that passes arrays costs 20 ns."""
    function.__qualname__ += f"_{_sources_fingerprint()}"
    return _compile(function, forceinline=True)


def _compile(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    # _nrt is numba's own option for what it compiles without its runtime: not in its documentation, nor in its types.
    compiled: Callable[P, R] = numba.njit(nogil=True, cache=True, _nrt=False, **options)(function)  # type: ignore[call-overload]
    return compiled
