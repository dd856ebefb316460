// One franz-go member of a group: member BOOTSTRAP TOPIC GROUP
//
// Prints `r PARTITION OFFSET` for each record, then commits; a signal to end makes it leave.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const commitTimeout = 30 * time.Second

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ending, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	out := bufio.NewWriter(os.Stdout)
	for ending.Err() == nil {
		fetches := client.PollRecords(ending, 100)
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Fprintf(out, "r %d %d\n", record.Partition, record.Offset)
		})
		out.Flush()
		commit, cancel := context.WithTimeout(context.Background(), commitTimeout)
		if err := client.CommitRecords(commit, fetches.Records()...); err != nil {
			// The group has moved on, or the broker is away: somebody reads these again.
			fmt.Fprintln(os.Stderr, "not committed:", err)
		}
		cancel()
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
