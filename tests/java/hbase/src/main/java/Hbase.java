// Tests a server with Google's HBase client. The only argument is the port. Exits
// with an error at the first unexpected response.

import com.google.cloud.bigtable.hbase.BigtableConfiguration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.util.Bytes;

public class Hbase {
  static final byte[] FAMILY = bytes("cf");
  static final byte[] COLUMN = bytes("q");

  static byte[] bytes(String text) {
    return Bytes.toBytes(text);
  }

  static void same(Object got, Object expected) {
    if (!Objects.equals(got, expected)) {
      throw new AssertionError("expected " + expected + ", got " + got);
    }
  }

  static String value(Table table, String row) throws Exception {
    return Bytes.toString(table.get(new Get(bytes(row))).getValue(FAMILY, COLUMN));
  }

  static int count(Table table, Scan scan) throws Exception {
    int count = 0;
    try (var scanner = table.getScanner(scan)) {
      for (Result ignored : scanner) {
        count++;
      }
    }
    return count;
  }

  static void rows(Table table) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 1000; i++) {
      puts.add(new Put(bytes(String.format("r%04d", i))).addColumn(FAMILY, COLUMN, bytes("v" + i)));
    }
    table.put(puts);
    same(value(table, "r0007"), "v7");
    same(count(table, new Scan()), 1000);
    var range = new Scan().withStartRow(bytes("r0100")).withStopRow(bytes("r0200"));
    same(count(table, range), 100);
    var present =
        new ValueFilter(CompareOperator.GREATER_OR_EQUAL, new BinaryComparator(bytes("v")));
    same(count(table, range.setFilter(new FilterList(new PageFilter(50), present))), 50);
    same(table.incrementColumnValue(bytes("r0001"), FAMILY, bytes("n"), 7), 7L);
    var put = new Put(bytes("r0007")).addColumn(FAMILY, COLUMN, bytes("w"));
    var check = table.checkAndMutate(bytes("r0007"), FAMILY).qualifier(COLUMN);
    same(check.ifEquals(bytes("v7")).thenPut(put), true);
    table.append(new Append(bytes("r0007")).addColumn(FAMILY, COLUMN, bytes("+")));
    same(value(table, "r0007"), "w+");
    table.delete(new Delete(bytes("r0007")));
    same(table.exists(new Get(bytes("r0007"))), false);
  }

  public static void main(String[] arguments) throws Exception {
    var settings = BigtableConfiguration.configure("p", "hbase");
    settings.set("google.bigtable.emulator.endpoint.host", "localhost:" + arguments[0]);
    try (var connection = BigtableConfiguration.connect(settings)) {
      var admin = connection.getAdmin();
      var name = TableName.valueOf("hbase");
      var family = ColumnFamilyDescriptorBuilder.newBuilder(FAMILY).setMaxVersions(5).build();
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family).build());
      same(List.of(admin.listTableNames()), List.of(name));
      rows(connection.getTable(name));
      admin.disableTable(name);
      admin.deleteTable(name);
      same(admin.listTableNames().length, 0);
    }
    System.exit(0);
  }
}
