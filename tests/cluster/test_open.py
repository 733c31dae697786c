from __future__ import annotations

from typing import cast

import pytest

from rookery.cluster.open import open_log
from rookery.cluster.port import Durability
from rookery.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "not a URL"),
        ("cluster.sqlite", "not a URL"),
        ("Memory:x", "not a URL"),
        ("../memory:x", "not a URL"),
        ("zookeeper:x", "no backend called 'zookeeper'"),
        ("sqlite:", "write sqlite:///"),
        ("sqlite://host/path", "write sqlite:///"),
        ("sqlite:///path?mode=ro", "write sqlite:///"),
        ("sqlite:///a%00b", "write sqlite:///"),
    ],
)
async def test_a_url_that_names_no_log_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_log(url)


async def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(ConfigError, match="durability 'hope'"):
        open_log("memory:", durability=cast("Durability", "hope"))
