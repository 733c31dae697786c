"""Lets the process that plans a stream answer Spark before it has loaded anything.

Spark starts a Python of its own for every streaming source and gives it ten seconds to connect
back; no setting changes that. The process loads pyspark and Arrow first, which takes more than a
second of computing, and on a busy host ten times that: then the query fails. Python runs this file
at its very start, if its folder is on `PYTHONPATH`. It connects at once, and hands the connection
over when pyspark asks for it. Any other `sitecustomize` on the path runs as well.

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

# Only a Python that Spark starts without its daemon is told of this.
_VARIABLE = "PYTHON_WORKER_FACTORY_SOCK_PATH"
_PLAIN = socket.socket


def _answer(path: str) -> None:
    early = _PLAIN(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        early.connect(path)
    except OSError:
        early.close()  # pyspark's own attempt tells what is wrong
        return

    class Answered(_PLAIN):
        """A socket that, asked to connect there, is connected already."""

        def connect(self, address: Any) -> None:
            if address != path or socket.socket is _PLAIN:
                super().connect(address)
                return
            socket.socket = _PLAIN  # type: ignore[misc] # as it was before
            os.dup2(early.fileno(), self.fileno(), inheritable=False)
            early.close()
            self.settimeout(self.gettimeout())  # of what lies under the number now

    socket.socket = Answered  # type: ignore[misc] # until it was asked for once


def _end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, (BrokenPipeError, ConnectionResetError)):
        sys.__excepthook__(kind, error, trace)


def _run_next() -> None:
    """Run the `sitecustomize` that would have been run, had this one not been in its way."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib takes long)
    sys.path[:] = [one for one in sys.path if one != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


def _is_runner(words: list[str]) -> bool:
    """Whether this is a module of pyspark's, run as a program."""
    return any(flag == "-m" and word.startswith("pyspark.") for flag, word in pairwise(words))


if __name__ == "sitecustomize":
    _path = os.environ.get(_VARIABLE)  # noqa: TID251 (Spark's own way to tell)
    if _path and _is_runner(sys.orig_argv):
        sys.excepthook = _end_quietly
        _answer(_path)
    _run_next()
