"""Fixtures of the tests of engines and clusters."""

from tests.faults.conftest import home

__all__ = ["home"]
