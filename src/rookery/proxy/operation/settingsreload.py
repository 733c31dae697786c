"""Applies changed settings to a running proxy, and reports the result.

A hang-up signal (SIGHUP) lets a proxy read its files again. Workers get the changed settings from
their supervisor instead. Settings that cannot be used change nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from rookery.errors import ConfigError, Error
from rookery.proxy.operation.settingschange import SettingsChange
from rookery.proxy.settings import ProxySettings

log = logging.getLogger(__name__)


class SettingsSource(Protocol):
    """Reads the settings of a proxy from where its start has read them."""

    def read(self) -> ProxySettings:
        """Read them again.

        Raises:
            ConfigError: they cannot be used; the message names file, line and setting.
        """

    def locate(self, error: ConfigError) -> ConfigError:
        """Return an error that names the file and the line of the setting, too."""


class SettingsReload:
    """Changes the settings of one proxy, one change at a time."""

    def __init__(
        self, apply: Callable[[ProxySettings], Awaitable[SettingsChange]], stopped: asyncio.Event
    ) -> None:
        """Change nothing yet.

        Args:
            apply: changes the settings of the proxy, or raises a `ConfigError`.
            stopped: set when the process is asked to stop; a change under way is given up.
        """
        self.trouble = ""
        """Why the last change was refused; empty if it was not."""
        self.applied = 0
        """How many changes are in effect."""
        self.refused = 0
        """How many changes were refused."""
        self._apply = apply
        self._stopped = stopped

    async def read(self, source: SettingsSource) -> None:
        """Read the settings again, and apply them."""
        try:
            settings = await asyncio.to_thread(source.read)
            await self.change(settings)
        except ConfigError as error:
            problem = str(source.locate(error))
            self.record_refusal(problem)
            log.error("the settings are not reloaded: %s", problem, extra={"error": problem})  # noqa: TRY400 (a user's mistake)
        except Exception as error:
            # The code of a filter can raise anything.
            self.record_refusal(repr(error))
            log.exception("the settings are not reloaded", extra={"error": repr(error)})

    async def change(self, settings: ProxySettings) -> None:
        """Apply settings, unless the process stops meanwhile.

        Raises:
            ConfigError: they cannot be used; nothing has changed.
        """
        change = await self._unless_stopped(self._apply(settings))
        if change is None:
            return
        self.applied += 1
        self.trouble = ""
        logging.getLogger().setLevel(settings.log_level.upper())
        log_change(change)

    def record_refusal(self, problem: str) -> None:
        """Record that changed settings cannot be used."""
        self.refused += 1
        self.trouble = f"the previous settings stay in use: {problem}"

    async def _unless_stopped(self, work: Awaitable[SettingsChange]) -> SettingsChange | None:
        task = asyncio.ensure_future(work)
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            for each in (task, stopped):
                each.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)


class HangUp:
    """Starts a reload for each hang-up signal; one that arrives during a reload starts another."""

    def __init__(self, reload: Callable[[], Awaitable[None]]) -> None:
        self._reload = reload
        self._is_wanted = False
        self._task: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Start a reload, after the one under way if there is one."""
        log.info("reloading the settings", extra={"signal": "SIGHUP"})
        self._is_wanted = True
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._is_wanted:
                self._is_wanted = False
                await self._reload()
        except Error as error:
            log.warning("the settings are not reloaded: %s", error, extra={"error": str(error)})
        finally:
            self._task = None


def log_change(change: SettingsChange) -> None:
    """Log which virtual clusters a change has touched, and what needs a restart."""
    parts = [
        f"{verb} {', '.join(names)}"
        for verb, names in (
            ("added", change.added),
            ("changed", change.changed),
            ("removed", change.removed),
        )
        if names
    ]
    log.info("the settings are reloaded: %s", "; ".join(parts) or "no virtual cluster has changed")
    if change.need_restart:
        log.warning(
            "these settings have changed and need a restart: %s",
            ", ".join(name.replace("_", "-") for name in change.need_restart),
        )
