"""Extensions of Spark's planner, which run only in the driver's Java process.

With `PlanPerQuery`, every query reads the records that exist when it starts. It changes only the
plans of the Rookery source. The other extensions are tunings. They are compiled with the compiler
that Spark uses for generated code, so no JDK and no jar is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Extension(NamedTuple):
    """A class that Spark's planner uses."""

    package: str
    """The Python package that contains its Java file."""
    name: str
    hook: str
    """The list of Spark's experimental methods to which it is added."""
    without: str
    """The behaviour if it cannot be compiled."""


PLAN_PER_QUERY: Final = Extension(
    package="rookery.spark",
    name="PlanPerQuery",
    hook="extraOptimizations",
    without="plans a DataFrame once: later queries on it do not see newer records",
)
PLAN_PER_QUERY_SETTING: Final = "spark.rookery.planPerQuery"
"""A Spark setting; `false` leaves the plans of the Rookery source unchanged."""


def extend_planner(spark: SparkSession, others: Iterable[Extension] = ()) -> None:
    """Add the extensions that a session lacks: `PlanPerQuery` unless it is off, and others.

    Queries work without them. A warning names each extension that does not work with the session's
    Spark.
    """
    # With Connect there is no Java here, even if only the environment selects Connect.
    if not hasattr(spark, "_jsparkSession"):
        return
    if spark.conf.get(PLAN_PER_QUERY_SETTING, "true") != "false":
        _add(spark, PLAN_PER_QUERY)
    for extension in others:
        _add(spark, extension)


def _add(spark: SparkSession, extension: Extension) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415

    methods = spark._jsparkSession.experimental()
    present = getattr(methods, extension.hook)()
    if f"{extension.package}.{extension.name}" in str(present):
        return
    try:
        added = present.prepended(_compile(spark, extension))
    except Py4JError as error:
        text = f"Spark {spark.version} {extension.without}: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
        return
    getattr(methods, f"{extension.hook}_$eq")(added)


def _compile(spark: SparkSession, extension: Extension) -> Any:
    """Compile a class; return an instance for a session."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    package, name = extension.package, extension.name
    compiler.cook(files(package).joinpath(f"{name}.java").read_text("utf-8"))
    [constructor] = compiler.getClassLoader().loadClass(f"{package}.{name}").getConstructors()
    arguments = gateway.new_array(jvm.Object, 1)
    arguments[0] = spark._jsparkSession
    return constructor.newInstance(arguments)
