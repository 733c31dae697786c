"""What happens when records that were wanted are gone: fail, go on, or go on and report.

A reported gap is a file of JSON in the folder that `gapsTo` names, called after its offsets: who
finds the same gap again writes the same file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.direct.plan import Gap
from rookery.errors import ConfigError, Conflict
from rookery.spark.options import ReadOptions

log = logging.getLogger(__name__)

_SHOWN: Final = 5


def handle_gaps(options: ReadOptions, gaps: Sequence[Gap]) -> None:
    """Do with gaps as the options say.

    Raises:
        Conflict: they say that the query shall fail.
        ConfigError: they cannot be reported.
    """
    if not gaps:
        return
    words = "; ".join(map(str, gaps[:_SHOWN]))
    if len(gaps) > _SHOWN:
        words += f"; and {len(gaps) - _SHOWN} more"
    if options.on_data_loss == "fail":
        raise Conflict(
            f"records that this query wants are gone: {words}. Start it elsewhere, or choose "
            "onDataLoss=skip (failOnDataLoss=false) or onDataLoss=report with gapsTo=FOLDER"
        )
    log.warning("records that this query wants are gone: %s", words)
    if options.on_data_loss == "report":
        for gap in gaps:
            _report(Path(options.gaps_to), gap)


def _report(folder: Path, gap: Gap) -> None:
    name = f"{gap.topic}-{gap.partition}-{gap.begin:020}-{gap.end:020}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(gap._asdict()) + "\n")
    except OSError as error:
        raise ConfigError(f"gapsTo={str(folder)!r}: {error.strerror or error}") from None
