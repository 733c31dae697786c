"""Connects the process that plans a stream to Spark before it loads any module.

Spark starts a Python process for every streaming source and gives it ten seconds to connect back.
No setting changes that. The process first loads pyspark and Arrow, which takes more than a second
of processor time. On a busy host it takes ten times as long, and the query fails. Python runs this
file first, if its folder is on `PYTHONPATH`. It connects immediately, and passes the connection to
pyspark when pyspark connects. Any other `sitecustomize` on the path runs as well.

If the query is stopped meanwhile, Spark closes the connection. The process then ends without a
traceback.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from itertools import pairwise
from typing import Any

# Set only for a Python process that Spark starts without its daemon.
_VARIABLE = "PYTHON_WORKER_FACTORY_SOCK_PATH"
_PLAIN = socket.socket


def _answer(path: str) -> None:
    early = _PLAIN(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        early.connect(path)
    except OSError:
        early.close()  # pyspark's own attempt reports the error
        return

    class EarlySocket(_PLAIN):
        """A socket whose `connect` to that path reuses the early connection."""

        def connect(self, address: Any) -> None:
            if address != path or socket.socket is _PLAIN:
                super().connect(address)
                return
            socket.socket = _PLAIN  # type: ignore[misc] # as it was before
            os.dup2(early.fileno(), self.fileno(), inheritable=False)
            early.close()
            self.settimeout(self.gettimeout())  # apply it to the new descriptor

    socket.socket = EarlySocket  # type: ignore[misc] # until it was asked for once


def _end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, (BrokenPipeError, ConnectionResetError)):
        sys.__excepthook__(kind, error, trace)


def _run_next() -> None:
    """Run the next `sitecustomize` on the path, which this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib takes long)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


def _is_runner(words: list[str]) -> bool:
    """Return whether this process runs a module of pyspark as a program."""
    return any(flag == "-m" and word.startswith("pyspark.") for flag, word in pairwise(words))


if __name__ == "sitecustomize":
    _path = os.environ.get(_VARIABLE)  # noqa: TID251 (Spark sets it)
    if _path and _is_runner(sys.orig_argv):
        sys.excepthook = _end_quietly
        _answer(_path)
    _run_next()
