"""Settings for every test: what hypothesis may do, and how the virtual machines of Spark run.

`make test` always draws the same examples, so that a red run is red again; `make soak` draws new
ones, and ten times as many.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Tests end before compiling their JVM's code for good pays: without it they take two thirds of the
# time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell has what it runs in the background ignore interrupts, and whatever tests start inherits
# that: a command that is to end by an interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two busy cores make any time limit a matter of luck.
settings.register_profile(
    "quick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded: what docs/promises.md quotes."""
    for report in terminalreporter.getreports("passed"):
        figures = ", ".join(f"{value:,} {name}" for name, value in report.user_properties)
        if figures and report.when == "call":
            terminalreporter.write_line(f"{report.nodeid}: {figures}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test that may lose a race against the real server, and says why, run twice."""
    for item in items:
        for mark in item.iter_markers("races"):
            if not mark.kwargs.get("reason"):
                raise pytest.UsageError(f"{item.nodeid}: `races` needs a reason")
            item.add_marker(pytest.mark.flaky(reruns=1))
