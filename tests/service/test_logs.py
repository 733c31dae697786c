"""Log lines: what they hold, and that tools can read them back."""

from __future__ import annotations

import io
import logging

from rookery.service.logs import KeyValues


def test_log_line_is_logfmt() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("rookery.service.test")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(KeyValues(worker=2))
    logger.addHandler(handler)

    logger.warning('said "no"\nand left', extra={"topic": "a b", "error": 5})

    logger.removeHandler(handler)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "level=warning logger=service.test worker=2 " in line
    assert r'msg="said \"no\"\nand left" topic="a b" error=5' in line
