"""`import journal` is light: of other people's packages it loads msgspec and anyio, and no more."""

import json
import subprocess
import sys

OWN = {"journal", "worlds", "replay", "tools"}
ALLOWED = {"msgspec", "anyio"}
BROUGHT_ALONG = {"idna", "sniffio", "typing_extensions"}
"""What those two load by themselves, in one version or another."""
PROBE = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def loaded_by(module: str) -> set[str]:
    """Top-level packages beyond the standard library that `import module` loads."""
    command = [sys.executable, "-c", PROBE.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout)) - set(sys.stdlib_module_names) - OWN


def test_import_journal_loads_msgspec_and_anyio_only() -> None:
    assert loaded_by("journal") <= ALLOWED | BROUGHT_ALONG


def test_import_starts_nothing() -> None:
    script = "import threading, journal; assert threading.active_count() == 1"
    subprocess.run([sys.executable, "-c", script], check=True)
