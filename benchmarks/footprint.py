"""What the package weighs: the time that its import takes, and memory as a run grows. In processes of their own."""

import subprocess
import sys
from pathlib import Path
from time import perf_counter

MIB = 1024 * 1024
FEW, MANY = 10_000, 100_000


def import_ms(module: str, rounds: int = 15) -> tuple[float, float]:
    """Milliseconds that bare Python takes to start, and that it takes with `import module`.

    The quickest start of each: other processes on the machine can only add to it.
    """
    bare, full = [], []
    for _ in range(rounds):
        bare.append(_start_ms("pass"))
        full.append(_start_ms(f"import {module}"))
    return min(bare), min(full)


def _start_ms(code: str) -> float:
    begun = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (perf_counter() - begun) * 1000


def loop_ms() -> float:
    """Milliseconds that a fixed piece of Python takes: the quickest of three."""
    return min(_one_loop_ms() for _ in range(3))


def _one_loop_ms() -> float:
    begun, count = perf_counter(), 0
    for number in range(100_000):
        count += number & 1
    return (perf_counter() - begun) * 1000


def rss_bytes() -> int:
    """Memory of this process that is resident now (Linux), or was at most (elsewhere)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
