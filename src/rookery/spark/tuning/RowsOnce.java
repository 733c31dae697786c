package rookery.spark.tuning;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Plans scans of a Python source as Spark does, without the copy of every row.
 *
 * Spark's reader converts each row of an Arrow batch to an UnsafeRow. Its planner does not use
 * that: it adds a projection to every source that returns rows, to convert them to UnsafeRows. If
 * the projection passes all columns on unchanged, it is not needed.
 *
 * Only the driver has this class. Its plans consist only of Spark's own classes.
 */
public class RowsOnce extends SparkStrategy {
  private final DataSourceV2Strategy usual;

  public RowsOnce(SparkSession session) {
    usual = new DataSourceV2Strategy(session);
  }

  public Seq apply(LogicalPlan plan) {
    if (!(scanOf(plan) instanceof PythonScan)) {
      return (Seq) Nil$.MODULE$;
    }
    Seq plans = usual.apply(plan);
    if (plans.size() != 1 || !(plans.head() instanceof ProjectExec)) {
      return plans;
    }
    ProjectExec copy = (ProjectExec) plans.head();
    if (!copy.projectList().equals(copy.child().output())) {
      return plans;
    }
    return (Seq) Nil$.MODULE$.prepended(copy.child());
  }

  private static Scan scanOf(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation) {
      return ((DataSourceV2ScanRelation) plan).scan();
    }
    if (plan instanceof StreamingDataSourceV2ScanRelation) {
      return ((StreamingDataSourceV2ScanRelation) plan).scan();
    }
    return null;
  }
}
