"""Settings from files, environment and flags."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rookery
from rookery.broker.settings import BrokerSettings
from rookery.config.docstrings import field_docs
from rookery.config.flags import add_flags, read_flags
from rookery.config.load import LoadedSettings, config_files, load
from rookery.config.schema import settings_of
from rookery.config.sections import sections
from rookery.config.show import MASK, config_as_json, print_config
from rookery.errors import ConfigError


class Codec(Enum):
    NONE = "none"
    ZSTD = "zstd"


class Level(IntEnum):
    LOW = 1
    VERY_HIGH = 9


@dataclass(frozen=True, slots=True)
class Tls:
    """A class within the others."""

    certificate: Path | None = None
    """The server's certificate."""
    key_password: str = field(default="", metadata={"secret": True})
    """Opens the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What several have."""

    workers: int = field(default=1, metadata={"min": 1, "max": 64})
    """How many processes there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Common):
    """One of everything."""

    http_listen: str = "127.0.0.1:9644"
    """The address of metrics and health,
    in host:port form; 100% safe."""
    port: int = field(default=9092, metadata={"min": 0, "max": 65535})
    """The port."""
    ratio: float = field(default=0.5, metadata={"min": 0})
    """A ratio."""
    limit: int = field(default=7, metadata={"max": 7})
    """A limit."""
    auto_create: bool = True
    """Whether topics are made on first use."""
    durability: Literal["disk", "os"] = "disk"
    """When a record counts as safe."""
    acks: Literal[0, 1, -1] = -1
    """The user that needs it."""
    codec: Codec = Codec.NONE
    """How data is packed."""
    level: Level = Level.LOW
    """How hard it tries."""
    topics: tuple[str, ...] = ()
    """Topics to make."""
    ports: tuple[int, ...] = (1, 2)
    """More ports."""
    name: str | None = None
    """A name."""
    timeout_ms: int | None = 5
    """A time-out."""
    is_fast: bool | None = None
    """Whether it is fast; unset: we find out."""
    data: Path = Path("rookery-data")
    """Where data is kept."""
    password: str = field(default="geheim", metadata={"secret": True})
    """Lets you in."""
    tls: Tls = field(default_factory=lambda: Tls(certificate=Path("a.pem")))
    internal: Mapping[str, int] = field(default_factory=dict, metadata={"setting": False})

    def __post_init__(self) -> None:
        if self.port == 666:
            raise ConfigError(f"{self.port} is a bad number", name="port")
        if self.limit == 3:
            raise ConfigError("something else is wrong")


def parse(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, Settings)
    return read_flags(vars(parser.parse_args(arguments)))


def load_all(
    *arguments: str, file: Path | None = None, environ: Mapping[str, str] | None = None
) -> LoadedSettings[Settings]:
    files = [] if file is None else [file]
    return load(Settings, "broker", parse(*arguments), environ or {}, files)


def written(file: Path, toml: str) -> Path:
    file.write_text(toml)
    return file


def source(loaded: LoadedSettings[Settings], key: str) -> str:
    [setting] = [candidate for candidate in loaded.sources if candidate.key == key]
    return loaded.sources[setting]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rookery.toml"


def test_defaults() -> None:
    loaded = load(Settings, "broker", environ={})
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}


def test_strongest_source_takes_precedence(file: Path) -> None:
    toml = "[broker]\nport = 1\nlimit = 1\nworkers = 2\n"
    environ = {"ROOKERY_BROKER_PORT": "3", "ROOKERY_BROKER_LIMIT": "4"}
    loaded = load_all("--port", "5", file=written(file, toml), environ=environ)
    assert (loaded.settings.port, source(loaded, "port")) == (5, "flag --port")
    assert loaded.settings.limit == 4
    assert source(loaded, "limit") == "variable ROOKERY_BROKER_LIMIT"
    assert (loaded.settings.workers, source(loaded, "workers")) == (2, f"{file}:4")
    assert (loaded.settings.ratio, source(loaded, "ratio")) == (0.5, "default")


def test_later_file_takes_precedence(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[broker]\nport = 1\nlimit = 1\n")
    second.write_text("# mine\n[broker]\nport = 2\n")
    loaded = load(Settings, "broker", environ={}, files=[first, second])
    assert (loaded.settings.port, source(loaded, "port")) == (2, f"{second}:3")
    assert (loaded.settings.limit, source(loaded, "limit")) == (1, f"{first}:3")


def test_every_type_is_read_from_a_file(file: Path) -> None:
    toml = """
        [broker]
        http-listen = "h:1"
        ratio = 2
        auto_create = false
        durability = "os"
        acks = 0
        codec = "zstd"
        level = "very-high"
        topics = ["a", "b,c"]
        ports = [
            7,
        ]
        name = "n"
        timeout-ms = ""
        is-fast = true
        data = "/d"
        [broker.tls]
        certificate = ""
        key-password = "k"
        [proxy]
        is = "someone else's"
    """
    assert load_all(file=written(file, toml)).settings == Settings(
        http_listen="h:1",
        ratio=2.0,
        auto_create=False,
        durability="os",
        acks=0,
        codec=Codec.ZSTD,
        level=Level.VERY_HIGH,
        topics=("a", "b,c"),
        ports=(7,),
        name="n",
        timeout_ms=None,
        is_fast=True,
        data=Path("/d"),
        tls=Tls(certificate=None, key_password="k"),  # noqa: S106 (it is none)
    )


TEXTS = {
    "http-listen": "h:1",
    "ratio": "1e-3",
    "durability": "os",
    "acks": "-1",
    "codec": "zstd",
    "level": "very-high",
    "topics": "a, b,,c",
    "ports": "",
    "name": "",
    "timeout-ms": "10_000",
    "data": "/d",
    "tls-certificate": "/c",
}
FROM_TEXTS = Settings(
    http_listen="h:1",
    ratio=0.001,
    durability="os",
    codec=Codec.ZSTD,
    level=Level.VERY_HIGH,
    topics=("a", "b", "c"),
    ports=(),
    timeout_ms=10_000,
    data=Path("/d"),
    tls=Tls(certificate=Path("/c")),
)


def test_every_type_is_read_from_the_environment() -> None:
    environ = {
        f"ROOKERY_BROKER_{key.upper().replace('-', '_')}": text for key, text in TEXTS.items()
    }
    assert load_all(environ=environ).settings == FROM_TEXTS


def test_every_type_is_read_from_flags() -> None:
    flags = [part for key, text in TEXTS.items() for part in (f"--{key}", text)]
    assert load_all(*flags).settings == FROM_TEXTS


def test_switches_are_read_from_flags_and_environment() -> None:
    assert load_all("--no-auto-create", "--is-fast").settings == Settings(
        auto_create=False, is_fast=True
    )
    assert (
        load_all("--auto-create", environ={"ROOKERY_BROKER_AUTO_CREATE": "off"}).settings
        == Settings()
    )
    assert load_all(environ={"ROOKERY_BROKER_AUTO_CREATE": "No"}).settings == Settings(
        auto_create=False
    )
    assert load_all(environ={"ROOKERY_BROKER_IS_FAST": ""}).settings == Settings()


def test_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load_all("--data", "~/d").settings.data == Path("/home/me/d")


@pytest.mark.parametrize(
    ("key", "bad", "allowed"),
    [
        ("port", "abc", "a whole number from 0 to 65535"),
        ("port", "", "a whole number from 0 to 65535"),
        ("port", "1.0", "a whole number from 0 to 65535"),
        ("port", "65536", "a whole number from 0 to 65535"),
        ("port", "9" * 5000, "a whole number from 0 to 65535"),
        ("port", "٣", "a whole number from 0 to 65535"),
        ("ratio", "-1", "a number of at least 0"),
        ("ratio", "nan", "a number of at least 0"),
        ("ratio", "1e999", "a number of at least 0"),
        ("limit", "8", "a whole number of at most 7"),
        ("durability", "Disk", "one of disk, os"),
        ("acks", "2", "one of 0, 1, -1"),
        ("codec", "lz4", "one of none, zstd"),
        ("ports", "1,x", "a list of which each is a whole number"),
        ("timeout-ms", "soon", "a whole number, or empty"),
        ("data", "", "a path"),
        ("data", "~nobody-of-that-name/x", "a path"),
        ("name", "\udcff", "a text, or empty"),
    ],
)
def test_invalid_texts_are_named(key: str, bad: str, allowed: str) -> None:
    name = f"ROOKERY_BROKER_{key.upper().replace('-', '_')}"
    for arguments, environ, place in (
        ([f"--{key}={bad}"], {}, f"flag --{key}"),
        ([], {name: bad}, f"variable {name}"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_all(*arguments, environ=environ)
        text = str(caught.value)
        assert text.startswith(f"broker.{key}: must be {allowed}")
        assert text.endswith(f", not {bad!r} ({place})")


@pytest.mark.parametrize(
    "line",
    [
        'port = "9092"',
        "port = true",
        "port = 9092.0",
        "port = 70000",
        "port = []",
        "ratio = nan",
        "ratio = inf",
        'ratio = "0.5"',
        'auto-create = "yes"',
        "auto-create = 1",
        "http-listen = 5",
        "durability = 'memory'",
        "acks = 5",
        "acks = true",
        "codec = 1",
        "level = 9",
        "topics = 'a'",
        "topics = [1]",
        "data = 5",
        "timeout-ms = 'x'",
        "name = {a = 1}",
        "tls = 5",
    ],
)
def test_bad_values_in_a_file_are_named_with_their_line(file: Path, line: str) -> None:
    key = line.partition(" ")[0]
    with pytest.raises(ConfigError) as caught:
        load_all(file=written(file, f"# settings\n[broker]\n{line}\n"))
    assert str(caught.value).startswith(f"broker.{key}: ")
    assert str(caught.value).endswith(f"({file}:3)")


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ("[broker]\nprot = 1", "broker.prot: unknown; did you mean port? ({file}:2)"),
        ("[broker]\nhttp_lisen = ''", "did you mean http-listen? ({file}:2)"),
        ("[broker.tls]\n\ncertficate = ''", "broker.tls.certficate: unknown; did you mean"),
        ("[broker.tsl]\ncertificate = ''", "broker.tsl: unknown; did you mean tls? ({file}:1)"),
        ("[broker]\ntls = {x = 1}", "broker.tls.x: unknown; known are certificate, key-password"),
        ("[broker]\ntls.x = 1", "({file}:2)"),
        ("[broker]\ninternal = 1", "broker.internal: unknown"),
        ("[broker]\nxyzzy = 1", "broker.xyzzy: unknown; known are acks, auto-create, codec"),
        ("broker = 1", "broker: must be a table, written [broker] ({file}:1)"),
        ("[[broker]]\nport = 1", "broker: must be a table"),
        ("[broker]\nhttp-listen = 'a'\nhttp_listen = 'b'", "broker.http-listen: given twice"),
        ("[broker]\nport = ", "{file}: not TOML: Invalid value (at end of document)"),
    ],
)
def test_invalid_file_contents_are_refused(file: Path, toml: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_all(file=written(file, toml))
    assert problem.format(file=file) in str(caught.value)


def test_unknown_sections_are_refused_if_the_known_ones_are_given(file: Path) -> None:
    file.write_text("[brokr]\nport = 1\n[proxy]\n")
    with pytest.raises(ConfigError, match="brokr: unknown; did you mean broker") as caught:
        load(Settings, "broker", None, {}, [file], ["broker", "proxy"])
    assert "proxy" not in str(caught.value).replace("known are", "")
    assert load(Settings, "broker", None, {}, [file]).settings == Settings()


def test_every_server_package_has_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sections()
    assert {"broker", "clusters"} <= set(before)
    assert not {"net", "wire"} & set(before)
    for package in ("nest", "toolbox"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "nest" / "serve.py").touch()
    monkeypatch.setattr(rookery, "__path__", [str(tmp_path), *rookery.__path__])
    assert sections.__wrapped__() == ("nest", *before)


def test_all_problems_are_reported_together(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_all("--port", "x", file=written(file, "[broker]\nfoo = 1\nratio = -1"))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "broker.foo",
        "broker.port",
        "broker.ratio",
    ]


@pytest.mark.parametrize(
    ("data", "problem"), [(b"a = '\xff'", "not UTF-8"), (b"#" * 1_048_577, "above 1048576 bytes")]
)
def test_file_that_is_not_toml_is_refused(file: Path, data: bytes, problem: str) -> None:
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=problem):
        load(Settings, "broker", None, {}, [file])


def test_missing_file_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(Settings, "broker", None, {}, [file])


def test_value_refused_by_the_class_is_reported_with_its_source() -> None:
    with pytest.raises(ConfigError) as caught:
        load_all(environ={"ROOKERY_BROKER_PORT": "666"})
    expected = "broker.port: 666 is a bad number (variable ROOKERY_BROKER_PORT)"
    assert str(caught.value) == expected
    with pytest.raises(ConfigError, match=r"^broker: something else is wrong$"):
        load_all("--limit", "3")


def test_value_refused_by_a_nested_class_is_reported_with_its_source() -> None:
    with pytest.raises(ConfigError) as caught:
        load(BrokerSettings, "broker", environ={"ROOKERY_BROKER_REWRITE_MERGE_BYTES": "0"})
    assert str(caught.value) == (
        "broker.rewrite.merge-bytes: must be above 0, not 0 "
        "(variable ROOKERY_BROKER_REWRITE_MERGE_BYTES)"
    )


def test_secret_is_never_shown(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_all(file=written(file, "[broker]\npassword = 12345"))
    assert "12345" not in str(caught.value)
    loaded = load_all("--password", "12345", "--tls-key-password", "67890")
    assert loaded.settings.password == "12345"  # noqa: S105 (it is none)
    for text in (print_config(loaded), json.dumps(config_as_json(loaded))):
        assert "12345" not in text
        assert "67890" not in text
        assert MASK in text


@dataclass(frozen=True)
class Needy:
    """Has no default."""

    bootstrap: str
    """Where to begin."""


def test_missing_required_setting_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Needy, "client", environ={})
    assert str(caught.value) == (
        "client.bootstrap: must be set: by --bootstrap, by ROOKERY_CLIENT_BOOTSTRAP, "
        "or in the table [client] of a file"
    )
    assert load(Needy, "client", environ={"ROOKERY_CLIENT_BOOTSTRAP": "a"}).settings == Needy("a")


def test_a_misspelt_variable_is_a_warning() -> None:
    loaded = load_all(
        environ={"ROOKERY_BROKER_DURABILTY": "os", "ROOKERY_BROKER_SERVICE_HOST": "10.0.0.1"}
    )
    [warning] = loaded.warnings
    assert warning.startswith("variable ROOKERY_BROKER_DURABILTY is not a setting")
    assert warning.endswith("did you mean ROOKERY_BROKER_DURABILITY?")


def test_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_BROKER_PORT", "77")
    assert load(Settings, "broker").settings.port == 77


def test_default_config_files_are_found(tmp_path: Path) -> None:
    default = tmp_path / "rookery.toml"
    assert config_files((), {}, default) == []
    default.touch()
    assert config_files((), {}, default) == [default]
    environ = {"ROOKERY_CONFIG": "/b.toml"}
    assert config_files((), environ, default) == [Path("/b.toml")]
    named = ["/c.toml", "/d.toml"]
    assert config_files(named, environ, default) == [Path("/c.toml"), Path("/d.toml")]


def test_help_is_the_docstring_and_the_default() -> None:
    parser = argparse.ArgumentParser(prog="x", formatter_class=_Wide)
    add_flags(parser, Settings)
    text = " ".join(parser.format_help().split())
    for line in (
        "--http-listen HTTP_LISTEN The address of metrics and health, in host:port form; ",
        "100% safe. (default: 127.0.0.1:9644)",
        "--durability disk|os When a record counts as safe. (default: disk)",
        "--auto-create, --no-auto-create Whether topics are made on first use. (default: true)",
        "--workers WORKERS How many processes there are. (default: 1)",
        "--tls-certificate CERTIFICATE The server's certificate. (default: a.pem)",
        "--ports PORTS More ports. (default: [1, 2])",
        "--name NAME A name.",
        "--password PASSWORD Lets you in.",
    ):
        assert line in text
    assert "geheim" not in text
    assert "internal" not in text


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=1000, max_help_position=60)


def test_help_marks_required_settings() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Needy)
    assert "(required)" in parser.format_help()


def test_print_config_shows_the_source_of_each_value(file: Path) -> None:
    loaded = load_all("--port", "5", file=written(file, "[broker]\nworkers = 2\n"))
    text = print_config(loaded)
    assert f"workers = 2  # {file}:2\n" in text
    assert "port = 5  # flag --port\n" in text
    assert 'durability = "disk"  # default\n' in text
    assert '\n[broker.tls]\ncertificate = "a.pem"  # default\n' in text
    assert f'password = "{MASK}"  # default\n' in text


def test_config_as_json_shows_the_source_of_each_value() -> None:
    rows = config_as_json(load_all("--port", "5"))["broker"]
    assert json.loads(json.dumps(rows)) == rows
    assert rows["port"] == {"value": 5, "source": "flag --port"}
    assert rows["name"] == {"value": None, "source": "default"}
    assert rows["tls.certificate"] == {"value": "a.pem", "source": "default"}


texts = st.text(st.characters(exclude_categories=["Cs"]))
paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0~"), min_size=1)
every = st.builds(
    Settings,
    http_listen=texts,
    port=st.integers(0, 65535).filter(lambda port: port != 666),
    ratio=st.floats(0, allow_infinity=False),
    limit=st.integers(max_value=2),
    auto_create=st.booleans(),
    durability=st.sampled_from(["disk", "os"]),
    acks=st.sampled_from([0, 1, -1]),
    codec=st.sampled_from(Codec),
    level=st.sampled_from(Level),
    topics=st.lists(texts).map(tuple),
    ports=st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
    name=st.none() | texts.filter(bool),
    timeout_ms=st.none() | st.integers(),
    is_fast=st.none() | st.booleans(),
    data=paths.map(Path),
    password=st.just(""),
    tls=st.builds(Tls, certificate=st.none() | paths.map(Path), key_password=st.just("")),
    internal=st.just({}),
)


@given(every)
def test_printed_config_can_be_loaded(
    tmp_path_factory: pytest.TempPathFactory, settings: Settings
) -> None:
    values = {}
    for setting in settings_of(Settings):
        value: object = settings
        for name in setting.path:
            value = getattr(value, name)
        values[setting] = value
    shown = print_config(
        LoadedSettings(settings, "broker", values, dict.fromkeys(values, "a\nplace"))
    )
    assert set(tomllib.loads(shown)) == {"broker"}
    file = tmp_path_factory.getbasetemp() / "shown.toml"
    file.write_bytes(shown.encode())
    assert load(Settings, "broker", None, {}, [file]).settings == settings


@given(st.text(), st.sampled_from(settings_of(Settings)))
def test_any_text_is_accepted_or_refused(text: str, setting: object) -> None:
    [own] = [own for own in settings_of(Settings) if own is setting]
    try:
        loaded = load(Settings, "broker", None, {own.variable("broker"): text})
    except ConfigError:
        return
    assert set(tomllib.loads(print_config(loaded))) <= {"broker"}


def test_docstrings_are_found_where_they_are() -> None:
    @dataclass(frozen=True)
    class Local(Common):
        first: int = 1
        """The
            first."""
        second: int = 2
        third: int = 3
        """The third."""

        def method(self) -> None:
            """Not a field's."""

    assert field_docs(Local) == {
        "workers": "How many processes there are.",
        "first": "The first.",
        "third": "The third.",
    }


def test_without_the_source_there_are_no_docstrings() -> None:
    scope: dict[str, type] = {}
    exec("class Made:\n    x: int = 1\n    '''Doc.'''\n", scope)  # noqa: S102 (it has no source)
    assert field_docs(scope["Made"]) == {}


@dataclass(frozen=True)
class Odd:
    things: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Clash:
    tls_certificate: str = ""
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True)
class Open:
    options: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    "text",
    [
        '[s]\noptions = {"a b" = 1, inner = {x = [true]}}\n',
        '[s.options]\n"a b" = 1\ninner.x = [true]\n',
    ],
)
def test_table_of_any_keys_is_taken_whole(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)

    loaded = load(Open, "s", environ={}, files=[file])

    assert loaded.settings.options == {"a b": 1, "inner": {"x": [True]}}
    file.write_text(print_config(loaded))
    assert load(Open, "s", environ={}, files=[file]).settings == loaded.settings


def test_table_can_be_given_as_text() -> None:
    loaded = load(Open, "s", environ={"ROOKERY_S_OPTIONS": '{a = "b"}'})

    assert loaded.settings.options == {"a": "b"}
    with pytest.raises(ConfigError, match="must be a table, such as"):
        load(Open, "s", environ={"ROOKERY_S_OPTIONS": "a"})


def test_a_class_that_cannot_be_settings_is_named() -> None:
    with pytest.raises(TypeError, match=r"Odd.things: a setting cannot be of type dict"):
        settings_of(Odd)
    with pytest.raises(TypeError, match=r"tls\.certificate and tls-certificate are both"):
        settings_of(Clash)


def test_whole_program_reads_flags_environment_and_file(tmp_path: Path) -> None:
    """As a command does it: flags, variables and the file of the folder one is in."""
    program = tmp_path / "program.py"
    program.write_text(
        "import argparse\n"
        "from dataclasses import dataclass\n"
        "from rookery.config.flags import add_flags, read_flags\n"
        "from rookery.config.load import config_files, load\n"
        "from rookery.config.show import print_config\n"
        "@dataclass(frozen=True)\n"
        "class Settings:\n"
        "    host: str = 'a'\n"
        "    port: int = 1\n"
        "    size: int = 2\n"
        "parser = argparse.ArgumentParser()\n"
        "add_flags(parser, Settings)\n"
        "flags = read_flags(vars(parser.parse_args()))\n"
        "print(print_config(load(Settings, 'broker', flags, files=config_files())), end='')\n"
    )
    (tmp_path / "rookery.toml").write_text("[broker]\nhost = 'b'\nport = 5\n")
    environ = {**os.environ, "ROOKERY_BROKER_PORT": "6"}
    command = [sys.executable, str(program), "--size", "7"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=True)
    assert done.stdout.decode() == (
        "[broker]\n"
        'host = "b"  # rookery.toml:2\n'
        "port = 6  # variable ROOKERY_BROKER_PORT\n"
        "size = 7  # flag --size\n"
    )


@dataclass(frozen=True)
class Door:
    """A table that a file can hold under any name."""

    listen: str = ""
    password: str = field(default="", metadata={"secret": True})


@dataclass(frozen=True)
class House:
    doors: dict[str, Door] = field(default_factory=dict)


def test_named_tables_are_loaded_by_name(tmp_path: Path) -> None:
    file = tmp_path / "house.toml"
    file.write_text(
        '[house.doors.front]\nlisten = "a:1"\n[house.doors.back-yard]\npassword = "x"\n'
    )

    loaded = load(House, "house", environ={}, files=[file])

    assert loaded.settings.doors == {"front": Door("a:1"), "back_yard": Door("", "x")}
    shown = print_config(loaded)
    assert 'password = "x"' not in shown
    assert "[house.doors.back-yard]" in shown


def test_an_unknown_key_of_a_named_table_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "house.toml"
    file.write_text('[house.doors.front]\nlisen = "a:1"\n')

    with pytest.raises(ConfigError, match=r"doors.front.lisen: unknown; did you mean listen.*:2"):
        load(House, "house", environ={}, files=[file])


@dataclass(frozen=True)
class Street:
    houses: dict[str, House] = field(default_factory=dict)


def test_named_tables_can_hold_named_tables(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text('[street.houses.old-mill.doors.front]\nlisten = "a:1"\n')
    second.write_text('[street.houses.old_mill.doors.back]\nlisten = "b:1"\n')

    loaded = load(Street, "street", environ={}, files=[first, second])

    doors = {"front": Door("a:1"), "back": Door("b:1")}
    assert loaded.settings.houses["old_mill"] == House(doors)
    shown = print_config(loaded)
    assert "[street.houses.old-mill.doors.front]" in shown
    first.write_text(shown)
    assert load(Street, "street", environ={}, files=[first]).settings == loaded.settings


def test_an_unknown_key_within_named_tables_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "street.toml"
    file.write_text('[street.houses.old.doors.front]\nlisen = "a:1"\n')

    with pytest.raises(
        ConfigError, match=r"houses.old.doors.front.lisen: unknown; did you mean listen.*:2"
    ):
        load(Street, "street", environ={}, files=[file])
