"""Extensions of Spark's planner, in the driver's Java alone.

`PlanPerQuery` has every query see the records that are there when it begins. `RowsOnce` spares a
copy of each row. The comments of the two Java files say why Spark does neither. Spark's own
compiler, which it has for generated code, compiles them: no JDK and no jar is needed.
"""

from __future__ import annotations

import warnings
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Extension(NamedTuple):
    """A class that Spark's planner uses."""

    name: str
    setting: str
    """A Spark setting; `false` leaves the planner as it is."""
    hook: str
    """The list that it joins, of Spark's experimental methods."""
    without: str
    """What is different where it cannot be compiled."""


EXTENSIONS: Final = (
    Extension(
        name="PlanPerQuery",
        setting="spark.rookery.planPerQuery",
        hook="extraOptimizations",
        without="plans a DataFrame once: later queries on it do not see newer records",
    ),
    Extension(
        name="RowsOnce",
        setting="spark.rookery.rowsOnce",
        hook="extraStrategies",
        without="copies each row that is read once more",
    ),
)


def extend_planner(spark: SparkSession) -> None:
    """Add the extensions that a session lacks, unless its settings turn them off.

    Queries work without them. A warning names each one that does not fit the session's Spark.
    """
    # With Connect there is no Java here, also where only the environment says that it is Connect.
    if not hasattr(spark, "_jsparkSession"):
        return
    for one in EXTENSIONS:
        if spark.conf.get(one.setting, "true") != "false":
            _add(spark, one)


def _add(spark: SparkSession, one: Extension) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415

    methods = spark._jsparkSession.experimental()
    present = getattr(methods, one.hook)()
    if f"rookery.spark.{one.name}" in str(present):
        return
    try:
        added = present.prepended(_compiled(spark, one.name))
    except Py4JError as error:
        text = f"Spark {spark.version} {one.without}: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
        return
    getattr(methods, f"{one.hook}_$eq")(added)


def _compiled(spark: SparkSession, name: str) -> Any:
    """Compile a class; return an instance for a session."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("rookery.spark").joinpath(f"{name}.java").read_text("utf-8"))
    [constructor] = compiler.getClassLoader().loadClass(f"rookery.spark.{name}").getConstructors()
    arguments = gateway.new_array(jvm.Object, 1)
    arguments[0] = spark._jsparkSession
    return constructor.newInstance(arguments)
