"""Freed memory stays in a worker."""

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, numpy as np, pyarrow as pa
from pipeline.memory import keep_freed_memory

def touched():
    array = np.empty(40_000_000, np.uint8)
    array[::4096] = 1

keep_freed_memory()
touched()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    touched()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, pa.default_memory_pool().backend_name)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be told to keep memory")
def test_memory_once_freed_is_taken_again_without_the_kernel_and_arrow_takes_it_from_the_same_place() -> None:
    told = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True).stdout
    num_faults, pool = told.split()
    # Some 200 for each array where it is mapped anew in large pages, 9,766 in small ones.
    assert int(num_faults) < 100
    assert pool == "system"
