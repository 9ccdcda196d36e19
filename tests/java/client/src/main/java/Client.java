// Tests a server with Google's Java client. The only argument is the port. Exits
// with an error at the first unexpected response.

import com.google.api.gax.rpc.NotFoundException;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminClient;
import com.google.cloud.bigtable.admin.v2.BigtableTableAdminSettings;
import com.google.cloud.bigtable.admin.v2.models.CreateTableRequest;
import com.google.cloud.bigtable.admin.v2.models.GCRules;
import com.google.cloud.bigtable.admin.v2.models.ModifyColumnFamiliesRequest;
import com.google.cloud.bigtable.data.v2.BigtableDataClient;
import com.google.cloud.bigtable.data.v2.BigtableDataSettings;
import com.google.cloud.bigtable.data.v2.models.BulkMutation;
import com.google.cloud.bigtable.data.v2.models.ConditionalRowMutation;
import com.google.cloud.bigtable.data.v2.models.Filters;
import com.google.cloud.bigtable.data.v2.models.Mutation;
import com.google.cloud.bigtable.data.v2.models.Query;
import com.google.cloud.bigtable.data.v2.models.ReadModifyWriteRow;
import com.google.cloud.bigtable.data.v2.models.Row;
import com.google.cloud.bigtable.data.v2.models.RowMutation;
import com.google.cloud.bigtable.data.v2.models.RowMutationEntry;
import com.google.cloud.bigtable.data.v2.models.TableId;
import com.google.protobuf.ByteString;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

public class Client {
  static final TableId TABLE = TableId.of("java");

  static void same(Object got, Object expected) {
    if (!Objects.equals(got, expected)) {
      throw new AssertionError("expected " + expected + ", got " + got);
    }
  }

  static void rejected(Runnable call, String expected) {
    try {
      call.run();
    } catch (NotFoundException error) {
      same(error.getMessage().contains(expected), true);
      return;
    }
    throw new AssertionError("not rejected: " + expected);
  }

  static void tables(BigtableTableAdminClient admin) throws Exception {
    admin.createTable(
        CreateTableRequest.of("java")
            .addFamily("cf", GCRules.GCRULES.maxVersions(3))
            .addSplit(ByteString.copyFromUtf8("m")));
    var oldOrMany =
        GCRules.GCRULES
            .union()
            .rule(GCRules.GCRULES.maxVersions(1))
            .rule(GCRules.GCRULES.maxAge(2, TimeUnit.DAYS));
    var changed =
        admin.modifyFamilies(ModifyColumnFamiliesRequest.of("java").addFamily("f2", oldOrMany));
    same(changed.getColumnFamilies().size(), 2);
    same(admin.listTables(), List.of("java"));
    admin.awaitReplication("java");
  }

  static void rows(BigtableDataClient client) throws Exception {
    client.mutateRow(
        RowMutation.create(TABLE, "r1").setCell("cf", "q", 1000, "v1").setCell("cf", "q", 2000, "v2"));
    var bulk = BulkMutation.create(TABLE);
    for (int i = 0; i < 1000; i++) {
      bulk.add(key(i), Mutation.create().setCell("cf", "q", 1000, "value" + i));
    }
    client.bulkMutateRows(bulk);
    try (var batcher = client.newBulkMutationBatcher(TABLE)) {
      for (int i = 1000; i < 5000; i++) {
        batcher.add(RowMutationEntry.create(key(i)).setCell("cf", "q", 1000, "value" + i));
      }
    }
    int count = 0;
    for (Row row : client.readRows(Query.create(TABLE).prefix("row"))) {
      same(row.getKey().toStringUtf8(), key(count));
      same(row.getCells().get(0).getValue().toStringUtf8(), "value" + count);
      count++;
    }
    same(count, 5000);
    var newest = client.readRow(TABLE, "r1", Filters.FILTERS.limit().cellsPerColumn(1));
    same(newest.getCells().size(), 1);
    same(newest.getCells().get(0).getValue().toStringUtf8(), "v2");
    same(client.readRow(TABLE, "absent"), null);
    List<String> backwards = new ArrayList<>();
    for (Row row : client.readRows(Query.create(TABLE).range(key(10), key(20)).reversed(true).limit(2))) {
      backwards.add(row.getKey().toStringUtf8());
    }
    same(backwards, List.of(key(19), key(18)));
    same(client.sampleRowKeys(TABLE).size(), 2);
  }

  static void changes(BigtableDataClient client) {
    var changed =
        client.readModifyWriteRow(
            ReadModifyWriteRow.create(TABLE, "r1").increment("cf", "n", 5).append("cf", "q", "+x"));
    same(changed.getCells("cf", "q").get(0).getValue().toStringUtf8(), "v2+x");
    var condition =
        Filters.FILTERS
            .chain()
            .filter(Filters.FILTERS.qualifier().exactMatch("q"))
            .filter(Filters.FILTERS.value().regex("v2.*"));
    var conditional =
        ConditionalRowMutation.create(TABLE, "r1")
            .condition(condition)
            .then(Mutation.create().setCell("cf", "seen", "yes"))
            .otherwise(Mutation.create().deleteRow());
    same(client.checkAndMutateRow(conditional), true);
    same(client.readRow(TABLE, "r1").getCells("cf", "seen").size(), 1);
  }

  static String key(int number) {
    return String.format("row%05d", number);
  }

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[0]);
    var adminSettings =
        BigtableTableAdminSettings.newBuilderForEmulator(port).setProjectId("p").setInstanceId("i");
    try (var admin = BigtableTableAdminClient.create(adminSettings.build())) {
      tables(admin);
    }
    var settings =
        BigtableDataSettings.newBuilderForEmulator(port).setProjectId("p").setInstanceId("i");
    try (var client = BigtableDataClient.create(settings.build())) {
      rows(client);
      changes(client);
      var unknown = RowMutation.create(TABLE, "r").setCell("none", "q", "v");
      rejected(() -> client.mutateRow(unknown), "none");
      rejected(() -> client.readRow(TableId.of("absent"), "r"), "absent");
    }
    System.exit(0);
  }
}
