"""What all tests share: an environment without network or the user's home, the zygote, a tiny model."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.zygote import Zygote

pytest_plugins = ("tests.tiers",)

# The same examples every time, so that the default tier says the same twice; --slow draws new ones. No deadline: a
# busy machine is no fault of the code, and what must be fast has a test of its own.
settings.register_profile("default", deadline=None, database=None, derandomize=True)
settings.register_profile("slow", deadline=None, database=None, derandomize=False, print_blob=True)
settings.load_profile("default")

# Before anything imports the libraries, which read these once.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in ("FACTORY_HOME", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
    os.environ.pop(_name, None)


def pytest_configure(config: pytest.Config) -> None:
    """Draw new examples with --slow; take the signals that people send by the keyboard, whoever started the tests."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if (
            signal.getsignal(number) is signal.SIG_IGN
        ):  # as nohup and `&` hand it on, to all commands of the tests
            signal.signal(number, usual)
    if config.getoption("--slow"):
        settings.load_profile("slow")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's ~/factory, even one that forgets --home."""
    monkeypatch.setenv("FACTORY_HOME", str(_shared_home(tmp_path_factory)))


def _shared_home(factory: pytest.TempPathFactory) -> Path:
    return factory.getbasetemp() / "no-home-given"


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One process with the libraries imported, for the whole session."""
    process = Zygote()
    yield process
    process.close()


@pytest.fixture(scope="session")
def tiny(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a tiny chat model."""
    folder = tmp_path_factory.mktemp("models") / "tiny chat"
    zygote.call("tests.tiny:save_tiny_at", folder=str(folder))
    return str(folder)
