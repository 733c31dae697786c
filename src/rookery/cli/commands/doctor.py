"""`rookery doctor`: reports what works here, what is missing or insecure, and how to correct it."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import sys
import sysconfig
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import positional, repeated

if TYPE_CHECKING:
    from rookery.native import NativeStatus

# These load the compiled modules; `rookery.native` knows only modules that were imported.
_USERS_OF_NATIVE = (
    "rookery.wire.codec",
    "rookery.records.kernel",
    "rookery.records.columns",
    "rookery.records.sieve",
    "rookery.records.murmur",
    "rookery.decode.avrocolumns",
    "rookery.consumer.gather",
)

_REINSTALL = "pip install --force-reinstall rookery"
_REBUILD = "pip install --force-reinstall --no-binary rookery rookery"


@dataclass(frozen=True, slots=True)
class _Library:
    """A library by the name it is imported as, the name pip knows, and its purpose."""

    module: str
    package: str
    use: str


_LIBRARIES = (
    _Library("cramjam", "cramjam", "snappy compression"),
    _Library("crc32c", "crc32c", "checksums of batches"),
    _Library("cryptography", "cryptography", "certificates"),
    _Library("h11", "h11", "HTTP: metrics and health"),
    _Library("jwt", "PyJWT", "logins with OAUTHBEARER"),
    _Library("isal", "isal", "fast gzip; else Python's own"),
    _Library("lz4", "lz4", "lz4 compression"),
    _Library("numpy", "numpy", "order of rows by time"),
    _Library("obstore", "obstore", "object stores: S3, Google, Azure"),
    _Library("pyarrow", "pyarrow", "records as Arrow columns"),
    _Library("re2", "google-re2", "topic patterns of consumer groups"),
    _Library("rich", "rich", "tables in the terminal"),
    _Library("uvloop", "uvloop", "fast event loop; else asyncio's own"),
    _Library("zstandard", "zstandard", "zstd compression"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; there is a remedy if it failed."""

    kind: str
    name: str
    detail: str
    remedy: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.remedy


@dataclass(frozen=True, kw_only=True)
class DoctorArguments(CommandArguments):
    """The settings of the broker to examine, with those of the environment."""

    properties: str | None = positional(
        "SERVER_PROPERTIES", "a Kafka configuration file whose settings are checked", nargs="?"
    )
    config: tuple[str, ...] = repeated(
        "--config",
        metavar="FILE",
        help="a TOML file with the broker's settings to check; may be repeated (default: the "
        "file in ROOKERY_CONFIG, or ./rookery.toml if it exists)",
    )


def run(args: DoctorArguments) -> int:
    """Examine everything; return 1 if something is missing or open to others."""
    findings = [*examine(), *_examine_security(args)]
    is_well = all(finding.is_well for finding in findings)
    if args.json:
        rows = [{**dataclasses.asdict(finding), "well": finding.is_well} for finding in findings]
        print_json({"well": is_well, "findings": rows})
    else:
        _print_findings(findings)
    return 0 if is_well else 1


def examine() -> list[Finding]:
    """Check the interpreter, the compiled modules, the libraries and Spark."""
    return [
        Finding("python", platform.python_implementation(), _python()),
        Finding("platform", platform.system(), platform.platform()),
        *_examine_modules(),
        *(_examine_native(status) for status in _native_report()),
        *(_examine_library(library) for library in _LIBRARIES if _is_expected(library)),
        *_examine_spark(),
    ]


def _python() -> str:
    return f"{platform.python_version()} at {sys.executable}"


def _examine_modules() -> list[Finding]:
    """Import what loads native code; report what cannot be imported at all."""
    findings = []
    with warnings.catch_warnings():
        # The one warning about pure Python would only repeat the findings below.
        warnings.simplefilter("ignore", RuntimeWarning)
        for name in _USERS_OF_NATIVE:
            try:
                import_module(name)
            except ImportError as error:
                findings.append(Finding("module", name, f"broken: {error}", _REINSTALL))
    return findings


def _native_report() -> list[NativeStatus]:
    from rookery.native import report

    return report()


def _examine_native(status: NativeStatus) -> Finding:
    if status.is_compiled:
        return Finding("native", status.native, "compiled")
    detail = f"slow: {status.twin} does its work ({status.reason})"
    return Finding("native", status.native, detail, _how_to_build())


def _how_to_build() -> str:
    missing = []
    if not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
        missing.append("gcc")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("python3-dev")
    install = f"apt-get install {' '.join(missing)}, then " if missing else ""
    return f"{install}{_REBUILD}"


def _is_expected(library: _Library) -> bool:
    # The same conditions as in pyproject.toml: elsewhere these two cannot be installed.
    if library.module == "uvloop":
        return sys.platform != "win32"
    if library.module == "isal":
        return platform.machine() in {"x86_64", "aarch64"}
    return True


def _examine_library(library: _Library) -> Finding:
    try:
        import_module(library.module)
    except ImportError as error:
        detail = f"{library.use}: {error}"
        remedy = f"pip install {library.package}"
        return Finding("library", library.module, detail, remedy)
    return Finding("library", library.module, f"{_version(library.package)}: {library.use}")


def _examine_spark() -> list[Finding]:
    from rookery.cli.sparkcheck import look_at_spark

    return [Finding("spark", *look) for look in look_at_spark()]


def _examine_security(args: DoctorArguments) -> list[Finding]:
    try:
        from rookery.cli.securitycheck import look_at_settings
    except ImportError as error:
        return [Finding("security", "broker", f"not examined: {error}", _REINSTALL)]
    looks = look_at_settings(args.config, args.properties or "")
    return [Finding("security", *look) for look in looks]


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown version"


def _print_findings(findings: list[Finding]) -> None:
    try:
        _print_table(findings)
    except ImportError:
        # The command must work without rich, to report that rich is missing.
        for finding in findings:
            word = "OPEN" if finding.kind == "security" else "MISSING"
            state = "ok" if finding.is_well else f"{word}, do: {finding.remedy}"
            print(f"{finding.kind} {finding.name}: {finding.detail}: {state}")


def _print_table(findings: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from rookery.cli.output.tables import open_console

    console = open_console()
    table = Table(box=None, pad_edge=False)
    for title in ("", "what", "which", "state"):
        table.add_column(title)
    for finding in findings:
        mark = "[green]✓[/]" if finding.is_well else "[yellow]![/]"
        table.add_row(mark, finding.kind, escape(finding.name), escape(finding.detail))
    console.print(table)
    sick = [finding for finding in findings if not finding.is_well]
    console.print("\nAll is well." if not sick else "\nWhat to do:")
    # By remedy, since one build repairs several modules; unwrapped, so that it can be copied.
    for remedy in dict.fromkeys(finding.remedy for finding in sick):
        names = ", ".join(finding.name for finding in sick if finding.remedy == remedy)
        console.print(f"  {escape(names)}\n    {escape(remedy)}", soft_wrap=True, highlight=False)


COMMAND = Command(
    arguments=DoctorArguments,
    run=run,
    summary="Check this installation and the broker's security settings, and suggest remedies.",
    example="rookery doctor --json\n  rookery doctor --config broker.toml",
)
