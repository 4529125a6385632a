"""Memory that is given back to the system and asked for again costs more than what is done in it.

A unit goes through its text in batches, each in arrays of tens of megabytes. By default they go back to the system when
they are freed, and the next batch gets pages that the kernel must find and fill with zeros: on the 2-core machine of
the benchmarks 0.1 to 0.3 of a build's core-seconds, the more the busier its host. So a worker keeps what it once had:
its peak is the same, and the next batch writes into memory that is there.
"""

import ctypes
import functools

import pyarrow as pa

# <malloc.h> of the GNU C library.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


@functools.cache
def keep_freed_memory() -> None:
    """Let freed memory stay in this process, for numpy and Arrow alike. Other C libraries than GNU's are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_TRIM_THRESHOLD, _NEVER)
    mallopt(_M_MMAP_MAX, 0)
    # Arrow's own allocator would hold what is free apart from numpy's, and give it back after 10 ms.
    pa.set_memory_pool(pa.system_memory_pool())
