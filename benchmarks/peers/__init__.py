"""The others: each in a process of its own, with its own defaults, measured in windows that alternate with ours.

A peer's module is run as `python -m benchmarks.peers.<name> URL RUNS`. It prepares a store of its own, then reads one
number of seconds a line, works for that long, and answers with its steps a second. Next: `peer.py`.
"""
