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
 * Plans the reading of a Python source as Spark does, less the copy of every row.
 *
 * Spark's reader makes an UnsafeRow of each row of an Arrow batch. Its planner does not know that:
 * it puts a projection on top of every source that gives rows, to make UnsafeRows of them. If that
 * projection passes all columns on as they come, there is nothing left for it to do.
 *
 * Only the driver has this class; the plans that it makes are of Spark's own classes alone.
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
