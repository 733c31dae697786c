"""The encryption filter compared with pass-through: the same clients through two of our proxies."""

from __future__ import annotations

import base64
import secrets
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from broker import child
from proxyparts.figures import ENCRYPTION, Figure
from proxyparts.rig import Route
from proxyparts.scene import Scene
from rookery.testing.proxyprocess import ProxyProcess

PASSED: Final = "pass-through"
SEALED: Final = "encryption"
_REST_MS: Final = "2"
_PARTITIONS: Final = 4
_SIZES: Final = {"1 KB": (1000, 500_000), "100 B": (100, 1_000_000)}


def encryption(scene: Scene) -> None:
    """Measure producing and consuming with both sizes of records."""
    for label, (size, count) in _SIZES.items():
        with _routes(scene) as routes:
            for what, verb in (("produce", _produce), ("consume", _consume)):
                name = f"encryption: {what} {label}"
                if scene.wants(name):
                    runs = {route.name: list[dict[str, float]]() for route in routes}
                    for route in routes:
                        scene.rig.make_topic(f"{route.name}-{what}-{size}", _PARTITIONS)
                        if verb is _consume:
                            _produce(route, f"{route.name}-{what}-{size}", scene.scale(count), size)
                    for number, route in scene.turns(routes, is_warm=verb is _consume):
                        before, total = route.cpu(), scene.scale(count)
                        values = verb(route, f"{route.name}-{what}-{size}", total, size)
                        values["CPU s/GB"] = (route.cpu() - before) / (total * size / 1e9)
                        scene.tell(number, route, name, values)
                        if number >= 0:
                            runs[route.name].append(values)
                    _report(scene, name, runs)
                    for route in routes:
                        scene.rig.delete_topic(f"{route.name}-{what}-{size}")


def _produce(route: Route, topic: str, count: int, size: int) -> dict[str, float]:
    return child("produce", route.bootstrap, topic, str(count), str(size))


def _consume(route: Route, topic: str, count: int, size: int) -> dict[str, float]:
    return child("consume", route.bootstrap, topic, str(count), str(size), _REST_MS)


def _report(scene: Scene, name: str, runs: dict[str, list[dict[str, float]]]) -> None:
    passed, sealed = ([run["MB/s"] for run in runs[each]] for each in (PASSED, SEALED))
    share = statistics.median(rate / base for rate, base in zip(sealed, passed, strict=True))
    middle = [statistics.median(each) for each in (passed, sealed)]
    scene.figures.add(
        Figure(f"{name}: share of pass-through", "MB/s", middle[0], middle[1], 1.0, share,
               1.0, bar=ENCRYPTION)
    )  # fmt: skip
    costs = [statistics.median(run["CPU s/GB"] for run in runs[each]) for each in (PASSED, SEALED)]
    scene.figures.add(Figure(f"{name}: CPU", "s/GB", costs[0], costs[1], 0.0))


@contextmanager
def _routes(scene: Scene) -> Iterator[list[Route]]:
    with TemporaryDirectory() as folder:
        flags = [*scene.rig.flags, str(_write_files(Path(folder)))]
        with (
            ProxyProcess(scene.rig.kafka, scene.rig.flags) as passed,
            ProxyProcess(scene.rig.kafka, flags) as sealed,
        ):
            yield [
                Route(PASSED, passed.bootstrap, passed.pid),
                Route(SEALED, sealed.bootstrap, sealed.pid),
            ]


def _write_files(folder: Path) -> Path:
    keys, settings = folder / "keys.toml", folder / "proxy.toml"
    keys.touch(mode=0o600)
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    keys.write_text(f'active = "k"\n[keys]\nk = "{key}"\n')
    settings.write_text(
        '[proxy]\nfilters = ["encryption"]\n[proxy.filter.encryption]\n'
        f'options = {{keys_file = "{keys}"}}\n'
    )
    return settings
