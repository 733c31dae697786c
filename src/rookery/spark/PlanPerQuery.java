package rookery.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.runtime.AbstractPartialFunction;

/**
 * Makes the rookery source plan every query separately.
 *
 * Spark stores the partitions of a Python source in an object that exists as long as the DataFrame.
 * The first query fills it, and all later ones use it, with the filters of the first. This rule
 * gives each query its own object. All scans of one DataFrame in one query share it, so that a
 * self-join of a DataFrame reads the same offsets on both sides.
 *
 * Only the driver has this class. Its plans consist only of Spark's own classes.
 */
public class PlanPerQuery extends Rule {
  private static final String SOURCE = "rookery";

  /** By query, the scans that were created for it. */
  private final Map queries = Collections.synchronizedMap(new WeakHashMap());

  public PlanPerQuery(SparkSession session) {}

  public TreeNode apply(TreeNode plan) {
    Option tracker = QueryPlanningTracker$.MODULE$.get();
    Map scans = tracker.isDefined() ? scansOf(tracker.get()) : new HashMap();
    return plan.transformDown(new Replacement(scans));
  }

  private Map scansOf(Object query) {
    synchronized (queries) {
      Map scans = (Map) queries.get(query);
      if (scans == null) {
        scans = new HashMap();
        queries.put(query, scans);
      }
      return scans;
    }
  }

  /** Replaces scans of the source; a scan is replaced once, with the filter on top of it. */
  private static class Replacement extends AbstractPartialFunction {
    private final Map scans;

    Replacement(Map scans) {
      this.scans = scans;
    }

    public boolean isDefinedAt(Object node) {
      return isStale(isPushed(node) ? ((Filter) node).child() : node);
    }

    public Object apply(Object node) {
      if (isPushed(node)) {
        Filter filter = (Filter) node;
        return filter.withNewChildren(one(fresh(filter.child(), filters(filter.condition()))));
      }
      return fresh(node, new ArrayList());
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      return isDefinedAt(node) ? apply(node) : other.apply(node);
    }

    private static boolean isPushed(Object node) {
      return node instanceof Filter && SQLConf.get().pythonFilterPushDown();
    }

    private boolean isStale(Object node) {
      if (!(node instanceof DataSourceV2ScanRelation)) {
        return false;
      }
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
      Table table = relation.relation().table();
      return table instanceof PythonTable
          && SOURCE.equalsIgnoreCase(table.name())
          && !scans.containsValue(relation.scan());
    }

    private LogicalPlan fresh(Object node, List filters) {
      DataSourceV2ScanRelation old = (DataSourceV2ScanRelation) node;
      List key = Arrays.asList(new Object[] {old.relation().table(), filters});
      Scan scan = (Scan) scans.get(key);
      if (scan == null) {
        scan = scanOf(old, filters);
        scans.put(key, scan);
      }
      Object[] arguments = new Object[old.productArity()];
      for (int at = 0; at < arguments.length; at++) {
        Object value = old.productElement(at);
        arguments[at] = value == old.scan() ? scan : value;
      }
      return (LogicalPlan) old.makeCopy(arguments);
    }

    private static Scan scanOf(DataSourceV2ScanRelation old, List filters) {
      PythonTable table = (PythonTable) old.relation().table();
      CaseInsensitiveStringMap options = old.relation().options();
      PythonDataSourceV2 source = new PythonDataSourceV2();
      source.setShortName(table.name());
      Table fresh = source.getTable(table.schema(), new Transform[0], options);
      PythonScanBuilder builder =
          (PythonScanBuilder) ((PythonTable) fresh).newScanBuilder(options);
      if (!filters.isEmpty()) {
        builder.pushFilters(
            (org.apache.spark.sql.sources.Filter[])
                filters.toArray(new org.apache.spark.sql.sources.Filter[0]));
      }
      // Done here and not when tasks are created, because several threads can do that.
      source.getOrCreateReadInfo(table.name(), options, table.schema(), false);
      return builder.build();
    }

    /** Returns the filters that a source can apply; Spark applies them to every row again. */
    private static List filters(Expression condition) {
      List found = new ArrayList();
      if (condition instanceof And) {
        found.addAll(filters(((And) condition).left()));
        found.addAll(filters(((And) condition).right()));
        return found;
      }
      Option filter = DataSourceStrategy$.MODULE$.translateFilter(condition, true);
      if (filter.isDefined()) {
        found.add(filter.get());
      }
      return found;
    }

    private static scala.collection.immutable.Seq one(Object node) {
      return (scala.collection.immutable.Seq)
          scala.collection.immutable.Nil$.MODULE$.prepended(node);
    }
  }
}
