"""The kit for tests: servers that start from wheels, and leave nothing behind. Next: `servers.py`."""
