"""Fixtures of the adapters' tests."""

from tests.adapters.bench import bench

__all__ = ["bench"]
