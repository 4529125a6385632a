"""Freed memory stays in a worker."""

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, numpy as np, pyarrow as pa
from pipeline.memory import keep_freed_memory

def num_faults(make):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        make()[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def of_numpy():
    return np.empty(3_000_000, np.uint8)

def of_arrow():
    return np.frombuffer(pa.allocate_buffer(3_000_000), np.uint8)

keep_freed_memory()
of_numpy()[::4096] = 1
print(num_faults(of_numpy), num_faults(of_arrow))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be told to keep memory")
def test_memory_that_numpy_freed_is_taken_again_by_numpy_and_by_arrow() -> None:
    told = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True).stdout
    # 7,330 pages would have to be found anew by either.
    assert [int(number) < 1_500 for number in told.split()] == [True, True]
