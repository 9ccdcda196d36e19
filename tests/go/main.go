// Reads rows of many sizes with Google's Go client, which fails if a message
// ends inside a row; first as they are, then while tablets split and join.
//
//	BIGTABLE_EMULATOR_HOST=<host:port> go run .
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"cloud.google.com/go/bigtable"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// size describes a group of rows: their number, and the number and size of their cells.
type size struct {
	prefix                 string
	rows, cells, cellBytes int
}

var sizes = []size{
	{"a", 300, 20, kib},
	{"b", 4, 300, kib},
	{"c", 2, 3, mib},
	{"d", 2, 1, 3*mib + 100*kib},
	{"e", 2, 2, mib + 300*kib},
	{"f", 20, 1, 10},
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Go client:", err)
		os.Exit(1)
	}
	fmt.Println("Go client: all passed")
}

func run(ctx context.Context) error {
	admin, err := bigtable.NewAdminClient(ctx, "p", "i")
	if err != nil {
		return err
	}
	defer admin.Close()
	config := &bigtable.TableConf{TableID: "rows", Families: map[string]bigtable.GCPolicy{"f": bigtable.NoGcPolicy()}}
	if err := admin.CreateTableFromConf(ctx, config); err != nil {
		return err
	}
	client, err := bigtable.NewClientWithConfig(ctx, "p", "i", bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}})
	if err != nil {
		return err
	}
	defer client.Close()
	table := client.Open("rows")
	if err := write(ctx, table); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := readInAllWays(ctx, table); err != nil {
		return err
	}
	return readWhileTabletsChange(ctx, table)
}

// readWhileTabletsChange reads again, several times, while tablets split and join.
func readWhileTabletsChange(ctx context.Context, table *bigtable.Table) error {
	changing, stop := context.WithCancel(ctx)
	defer stop()
	var changes int
	changed := make(chan error, 1)
	go func() {
		var err error
		changes, err = changeTablets(changing, "projects/p/instances/i/tables/rows", allKeys())
		changed <- err
	}()
	for range 3 {
		if err := readInAllWays(ctx, table); err != nil {
			return fmt.Errorf("while tablets change: %w", err)
		}
	}
	stop()
	if err := <-changed; err != nil {
		return err
	}
	fmt.Println("Go client: read while tablets changed", changes, "times")
	return nil
}

func allKeys() []string {
	var keys []string
	for _, size := range sizes {
		for row := 0; row < size.rows; row++ {
			keys = append(keys, fmt.Sprintf("%s%03d", size.prefix, row))
		}
	}
	return keys
}

func readInAllWays(ctx context.Context, table *bigtable.Table) error {
	for _, options := range [][]bigtable.ReadOption{
		nil,
		{bigtable.ReverseScan()},
		{bigtable.RowFilter(bigtable.FamilyFilter("f|g"))},
	} {
		if err := readAll(ctx, table, options); err != nil {
			return fmt.Errorf("read with %d options: %w", len(options), err)
		}
	}
	for _, size := range sizes {
		key := fmt.Sprintf("%s%03d", size.prefix, 1)
		row, err := table.ReadRow(ctx, key)
		if err != nil {
			return fmt.Errorf("read row %s: %w", key, err)
		}
		if err := check(row, size); err != nil {
			return err
		}
	}
	return nil
}

func write(ctx context.Context, table *bigtable.Table) error {
	for _, size := range sizes {
		var keys []string
		var mutations []*bigtable.Mutation
		for row := 0; row < size.rows; row++ {
			mutation := bigtable.NewMutation()
			for cell := 0; cell < size.cells; cell++ {
				value := bytes.Repeat([]byte{'v'}, size.cellBytes)
				mutation.Set("f", fmt.Sprintf("q%04d", cell), 1000, value)
			}
			keys = append(keys, fmt.Sprintf("%s%03d", size.prefix, row))
			mutations = append(mutations, mutation)
		}
		failed, err := table.ApplyBulk(ctx, keys, mutations)
		if err != nil {
			return err
		}
		for _, err := range failed {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func readAll(ctx context.Context, table *bigtable.Table, options []bigtable.ReadOption) error {
	found := map[string]int{}
	var wrong error
	err := table.ReadRows(ctx, bigtable.InfiniteRange(""), func(row bigtable.Row) bool {
		for _, size := range sizes {
			if size.prefix == row.Key()[:1] {
				wrong = check(row, size)
			}
		}
		found[row.Key()[:1]]++
		return wrong == nil
	}, options...)
	if err != nil {
		return err
	}
	if wrong != nil {
		return wrong
	}
	for _, size := range sizes {
		if found[size.prefix] != size.rows {
			return fmt.Errorf("expected %d rows with prefix %s, got %d", size.rows, size.prefix, found[size.prefix])
		}
	}
	return nil
}

func check(row bigtable.Row, size size) error {
	cells := row["f"]
	if len(cells) != size.cells {
		return fmt.Errorf("row %s: expected %d cells, got %d", row.Key(), size.cells, len(cells))
	}
	for _, cell := range cells {
		if len(cell.Value) != size.cellBytes {
			return fmt.Errorf("row %s: expected cells of %d bytes, got %d", row.Key(), size.cellBytes, len(cell.Value))
		}
	}
	return nil
}
