package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// encoded passes messages of stele.tables.v1.TabletAdmin, which are encoded here.
type encoded struct{}

func (encoded) Name() string                             { return "proto" }
func (encoded) Marshal(message any) ([]byte, error)      { return *message.(*[]byte), nil }
func (encoded) Unmarshal(message []byte, into any) error { *into.(*[]byte) = message; return nil }

// changeTablets splits and joins the tablets of a table at random rows until ctx
// ends. Returns how often it did.
func changeTablets(ctx context.Context, table string, rows []string) (int, error) {
	connection, err := grpc.NewClient(os.Getenv("BIGTABLE_EMULATOR_HOST"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(encoded{})))
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	call := func(method, row string) error {
		request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), table)
		request = protowire.AppendString(protowire.AppendTag(request, 2, protowire.BytesType), row)
		var reply []byte
		// A change that has begun is completed.
		return connection.Invoke(context.WithoutCancel(ctx), "/stele.tables.v1.TabletAdmin/"+method, &request, &reply)
	}
	chosen := rand.New(rand.NewSource(18))
	var meet []string
	changes := 0
	for ; ctx.Err() == nil; changes++ {
		if len(meet) > 0 && chosen.Intn(100) < 45 {
			last := len(meet) - 1
			at := chosen.Intn(len(meet))
			row := meet[at]
			meet[at], meet = meet[last], meet[:last]
			if err := call("JoinTablets", row); err != nil {
				return changes, fmt.Errorf("join at %q: %w", row, err)
			}
			continue
		}
		row := fmt.Sprintf("%s-%d", rows[chosen.Intn(len(rows))], changes)
		if err := call("SplitTablet", row); err != nil {
			return changes, fmt.Errorf("split at %q: %w", row, err)
		}
		meet = append(meet, row)
	}
	return changes, nil
}
