"""What all tests need."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def pytest_configure() -> None:
    """A shell that starts tests in the background makes them deaf to Ctrl-C, and with them every process they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


SHARED = ("tests/conformance/test_battery.py", "tests/conformance/test_table.py", "tests/conformance/test_traces.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's quick tests go to one process, because they share runs made once (and the table's three files share
    theirs); handed out one by one, every process would make all of them. Of the other markers the tests are few and
    long, so they are handed out one by one, and `--dist` still chooses otherwise."""
    if config.getoption("dist") != "load" or "not slow" not in config.getoption("markexpr"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return SHARED[0] if file in SHARED else file

    return ByFile(config, log)


@pytest.fixture(autouse=True)
def modules_of_temporary_folders_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many tests write a module `mine`, and another test in the same process must not get this one."""
    known = set(sys.modules)
    yield
    root = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(root):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def one_thread_per_process() -> None:
    """Tests run on as many processes as there are cores. Threads beside them only wait for each other: on tensors of
    a few numbers that costs more than all the computing. What must hold with several threads asks for `two_threads`.
    Processes that tests start have torch's own number."""
    import torch  # here, because the process that only hands out tests has no use for it

    torch.set_num_threads(1)


@pytest.fixture
def two_threads() -> Iterator[Callable[[], int]]:
    """The caller has two threads, as on every machine of a user: what is run must use one and put two back."""
    import torch

    torch.set_num_threads(2)
    yield torch.get_num_threads
    torch.set_num_threads(1)
