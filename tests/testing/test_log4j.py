"""The part of Kafka's log that an error shows."""

from __future__ import annotations

from rookery.testing.log4j import explain

TIME = "2026-11-19T20:51:20,909"
# The thread that loads the metadata prints the settings while the acceptor fails.
FAILED = f"""\
{TIME} INFO  ControllerServer: [ControllerServer id=1] Starting controller
{TIME} ERROR DataPlaneAcceptor: Unable to start acceptor for ListenerName(CONTROLLER)
org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:9092
\tat kafka.network.Acceptor.openServerSocket(SocketServer.scala:737)
Caused by: java.net.BindException: Address already in use
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
\t... 12 more
{TIME} INFO  AbstractConfig: KafkaConfig values:\x20
"""
SETTINGS = "".join(f"\tsetting.{number} = [a, b]\n" for number in range(600)) + "\n"
QUIET = "".join(f"{TIME} INFO  UnifiedLog: segment {number} rolled\n" for number in range(100))


def test_error_before_a_dump_of_settings_is_shown() -> None:
    shown = explain(FAILED + SETTINGS, 40)

    assert "Address already in use" in shown
    assert "setting.1" not in shown


def test_error_far_from_the_end_is_shown_without_its_stack() -> None:
    shown = explain(FAILED + SETTINGS + QUIET, 40).splitlines()

    assert [line.removeprefix(f"{TIME} ") for line in shown[:4]] == [
        "ERROR DataPlaneAcceptor: Unable to start acceptor for ListenerName(CONTROLLER)",
        "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:9092",
        "Caused by: java.net.BindException: Address already in use",
        "[…]",
    ]
    assert shown[4:] == QUIET.splitlines()[-40:]


def test_lines_in_the_end_are_not_repeated() -> None:
    assert explain(FAILED, 40) == FAILED.rstrip("\n")


def test_log_of_another_form_is_cut_to_its_end() -> None:
    text = "\n".join(map(str, range(100)))

    assert explain(text, 3) == "97\n98\n99"
