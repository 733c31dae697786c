"""The requests of the matrix can be written and read again."""

from __future__ import annotations

import pytest

from rookery.wire.codec import read_request, request_frame
from rookery.wire.frame import FrameSplitter
from tests.broker.access.requests import KNOWN, AccessCase, cases


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_request_is_complete(case: AccessCase) -> None:
    request = case.request({KNOWN: b"k" * 16})
    data = b"".join(request_frame(case.api, case.version, 1, "test", request))
    [frame] = FrameSplitter(2**31 - 1).feed(data)
    assert read_request(case.api, frame)[0].api_version == case.version
