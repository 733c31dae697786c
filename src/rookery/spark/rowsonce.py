"""Have Spark make a row of what a Python source gives once, not twice.

What is added is a strategy of Spark's planner, in the driver's Java alone: RowsOnce.java says why.
Spark's own compiler, which it has for generated code, compiles it: no JDK and no jar is needed.
"""

from __future__ import annotations

import warnings
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.rookery.rowsOnce"
"""Set to `false`, it leaves Spark's planner as it is."""
_CLASS: Final = "rookery.spark.RowsOnce"


def make_rows_once(spark: SparkSession) -> None:
    """Add the strategy to a session that has none yet, unless its settings say not to.

    All works without it, only slower: where it cannot be had, a warning says so.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415

    # With Connect there is no Java here, also where only the environment says that it is Connect.
    if spark.conf.get(SETTING, "true") == "false" or not hasattr(spark, "_jsparkSession"):
        return
    methods = spark._jsparkSession.experimental()
    if _CLASS in str(methods.extraStrategies()):
        return
    try:
        added = methods.extraStrategies().prepended(_strategy(spark))
    except Py4JError as error:
        text = f"Spark {spark.version} copies each row that is read once more: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return
    getattr(methods, "extraStrategies_$eq")(added)


def _strategy(spark: SparkSession) -> Any:
    """Return a new strategy, of a class that is compiled now."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("rookery.spark").joinpath("RowsOnce.java").read_text("utf-8"))
    [constructor] = compiler.getClassLoader().loadClass(_CLASS).getConstructors()
    arguments = gateway.new_array(jvm.Object, 1)
    arguments[0] = spark._jsparkSession
    return constructor.newInstance(arguments)
