"""A limit on the memory that reading a file may take: for what a library allocates because the file says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATM = Path("/proc/self/statm")
"""Where Linux tells how much address space a process has, in pages."""


@contextmanager
def memory_limited(additional: int) -> Iterator[None]:
    """Have every allocation fail, as MemoryError, that would take more than so many additional bytes of address space.

    The limit is the whole program's, so keep it short. Where the system is not Linux there is none.
    """
    try:
        import resource

        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([used + additional, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
