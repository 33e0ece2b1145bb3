"""The three tiers of the tests, and the counts of skips and of unsteady tests: a plugin that knows no test.

Default: what `python launch.py test` runs. --slow adds full margins, --engines adds the engines that live in an
environment of their own. A test of a tier that was not asked for is deselected, which pytest counts; a skip is
another thing: something was missing here. Every skip must stand in ALLOWED_SKIPS, or the whole run fails.

Where tests may be run again (--reruns, as .ci/run asks), one that failed first and passed then is unsteady: a fault
that is told with its first failure, and more than a few of them fail the run.
"""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

TIERS = ("slow", "engines")

ALLOWED_SKIPS: dict[str, str] = {
    "tests/faults/*": "needs root",
    "tests/faults/test_nodes.py*": "needs Linux",
    "tests/engines/test_slurm.py*": "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge",
    "tests/engines/test_deepspeed.py*": "factory env install deepspeed",
    "tests/engines/test_nodes.py*": "apt-get install --no-install-recommends",
    "tests/engines/*": "needs root",
    "tests/engines/test_unsloth.py*": "factory env install unsloth",
    "tests/engines/test_ssh.py*": "apt-get install --no-install-recommends",
    "tests/unit/test_gpu_scripts.py*": "for machines without a GPU",
    "tests/cpu/test_trackers.py*": "is not installed",  # trackers are no part of requirements.txt
    "tests/security/*": "needs root",
}
"""Tests that may skip: a pattern of test ids, and the reason that must be in the skip's own words."""


UNSTEADY_AT_MOST = 3
"""So many tests of thousands may need a second run on a busy machine; more are no accident."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that add a tier."""
    parser.addoption("--slow", action="store_true", help="also run tests with full margins")
    parser.addoption(
        "--engines", action="store_true", help="also run tests of engines with their own environment"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tiers that were not asked for."""
    left_out = [tier for tier in TIERS if not config.getoption(f"--{tier}")]
    unwanted = [item for item in items if any(item.get_closest_marker(tier) for tier in left_out)]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in set(unwanted)]


def unlisted(skips: list[tuple[str, str]], allowed: dict[str, str]) -> list[tuple[str, str]]:
    """The skips (test id, reason) that no entry of the list allows."""
    return [
        (test, reason)
        for test, reason in skips
        if not any(fnmatch(test, pattern) and words in reason for pattern, words in allowed.items())
    ]


class _Skips:
    """Counts skips as they happen and has the last word on the exit code."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.seen.append((report.nodeid, reason.removeprefix("Skipped: ")))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if unlisted(self.seen, ALLOWED_SKIPS) and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        wrong = unlisted(self.seen, ALLOWED_SKIPS)
        terminalreporter.write_line(f"skips: {len(self.seen)}, of them not listed: {len(wrong)}")
        for test, reason in wrong:
            terminalreporter.write_line(f"  NOT LISTED in tests/tiers.py: {test}: {reason}", red=True)


class _Unsteady:
    """Tells every test that was run a second time, with what was wrong first."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":
            self.seen[report.nodeid] = report.longreprtext

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.seen) > UNSTEADY_AT_MOST and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.seen:
            return
        terminalreporter.write_line(
            f"run a second time: {len(self.seen)}, of {UNSTEADY_AT_MOST} allowed", red=True
        )
        for test, words in self.seen.items():
            terminalreporter.write_line(f"  UNSTEADY, or failed again: {test}", red=True)
            terminalreporter.write_line(words[-3000:])


def pytest_configure(config: pytest.Config) -> None:
    """Count skips and second runs in every run."""
    config.pluginmanager.register(_Skips(), "skips")
    config.pluginmanager.register(_Unsteady(), "unsteady")
