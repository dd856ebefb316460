// franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"walser/tests/clients/cases"
)

var background = context.Background()

type adapter struct {
	bootstrap string
	admin     *kadm.Client
}

func newAdapter(bootstrap string) (cases.Adapter, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(10*time.Millisecond), kgo.RequestTimeoutOverhead(cases.RequestTimeout))
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(int32(cases.RequestTimeout.Milliseconds()))
	return &adapter{bootstrap, admin}, nil
}

func (a *adapter) Codecs() []string               { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }
func (a *adapter) HasIdempotence() bool           { return true }
func (a *adapter) KeepsOrder(cases.Settings) bool { return true }
func (a *adapter) TooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge)
}

func (a *adapter) Create(topic string) error {
	_, err := a.admin.CreateTopic(background, cases.Partitions, 1, nil, topic)
	return err
}

func (a *adapter) Delete(topic string) error {
	_, err := a.admin.DeleteTopic(background, topic)
	return err
}

func (a *adapter) LeaderCount(topic string) (int, error) {
	topics, err := a.admin.ListTopics(background, topic)
	if err != nil {
		return 0, err
	}
	found := topics[topic]
	if errors.Is(found.Err, kerr.UnknownTopicOrPartition) {
		return -1, nil
	}
	leaders := 0
	for _, partition := range found.Partitions {
		if partition.Leader >= 0 {
			leaders++
		}
	}
	return leaders, found.Err
}

func offsets(listed kadm.ListedOffsets, topic string, err error) (map[int32]int64, error) {
	if err == nil {
		err = listed.Error()
	}
	found := map[int32]int64{}
	for partition, one := range listed[topic] {
		found[partition] = one.Offset
	}
	return found, err
}

func (a *adapter) Offsets(topic, what string) (map[int32]int64, error) {
	list := a.admin.ListStartOffsets
	if what == "latest" {
		list = a.admin.ListEndOffsets
	}
	listed, err := list(background, topic)
	return offsets(listed, topic, err)
}

func (a *adapter) OffsetsAt(topic string, timestamp int64) (map[int32]int64, error) {
	listed, err := a.admin.ListOffsetsAfterMilli(background, timestamp, topic)
	found, err := offsets(listed, topic, err)
	// The library puts the end where no record is that young, and says so by a timestamp of -1.
	for partition, one := range listed[topic] {
		if one.Timestamp == -1 {
			found[partition] = -1
		}
	}
	return found, err
}

func recreated(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

type producer struct{ client *kgo.Client }

func (a *adapter) NewProducer(settings cases.Settings) (cases.Producer, error) {
	options := []kgo.Opt{kgo.SeedBrokers(a.bootstrap), kgo.ProduceRequestTimeout(cases.RequestTimeout), kgo.RequestTimeoutOverhead(cases.RequestTimeout)}
	if settings.Manual {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	if settings.Codec != "" {
		options = append(options, kgo.ProducerBatchCompression(codecs[settings.Codec]))
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	if settings.Acks != "" {
		options = append(options, kgo.RequiredAcks(acks[settings.Acks]))
		if !settings.Idempotent {
			options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
		}
	}
	if settings.LargeRequests {
		options = append(options, kgo.ProducerBatchMaxBytes(4_000_000))
	}
	if settings.ShortTimeouts {
		// Not the delivery timeout: it runs from the record's own timestamp, and these are of an hour ago.
		options = append(options, kgo.RecordRetries(3), kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	}
	client, err := kgo.NewClient(options...)
	return &producer{client}, err
}

func (p *producer) Close() { p.client.Close() }

func (p *producer) Send(topic string, records []cases.Record) []cases.Result {
	results := make([]cases.Result, len(records))
	for position, record := range records {
		sent := &kgo.Record{Topic: topic, Partition: record.Partition, Key: record.Key, Value: record.Value, Timestamp: time.UnixMilli(record.Timestamp)}
		for _, header := range record.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		p.client.Produce(background, sent, func(done *kgo.Record, err error) {
			results[position] = cases.Result{Partition: done.Partition, Offset: done.Offset, Err: err}
		})
	}
	if err := p.client.Flush(background); err != nil {
		panic(err)
	}
	// The library never takes up a topic's new id by itself: the program has to say that it knows the old topic is gone.
	if slices.ContainsFunc(results, func(result cases.Result) bool { return recreated(result.Err) }) {
		p.client.PurgeTopicsFromProducing(topic)
	}
	return results
}

type consumer struct {
	client *kgo.Client
	topic  string
}

func fromStart(topic string) map[string]map[int32]kgo.Offset {
	partitions := map[int32]kgo.Offset{}
	for partition := range int32(cases.Partitions) {
		partitions[partition] = kgo.NewOffset().AtStart()
	}
	return map[string]map[int32]kgo.Offset{topic: partitions}
}

func (a *adapter) NewConsumer(topic string, shortTimeouts bool) (cases.Consumer, error) {
	options := []kgo.Opt{kgo.SeedBrokers(a.bootstrap), kgo.ConsumePartitions(fromStart(topic)), kgo.RequestTimeoutOverhead(cases.RequestTimeout)}
	if shortTimeouts {
		options = append(options, kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	}
	client, err := kgo.NewClient(options...)
	return &consumer{client, topic}, err
}

func (c *consumer) Close() { c.client.Close() }

func (c *consumer) Poll() (reads []cases.Read) {
	limited, cancel := context.WithTimeout(background, 200*time.Millisecond)
	defer cancel()
	fetches := c.client.PollFetches(limited)
	again := false
	fetches.EachError(func(topic string, partition int32, err error) {
		again = again || recreated(err)
		if !errors.Is(err, context.DeadlineExceeded) {
			fmt.Fprintf(os.Stderr, "running consumer: %s-%d: %v\n", topic, partition, err)
		}
	})
	if again {
		c.client.PurgeTopicsFromConsuming(c.topic)
		c.client.AddConsumePartitions(fromStart(c.topic))
	}
	fetches.EachRecord(func(record *kgo.Record) {
		read := cases.Read{Offset: record.Offset}
		read.Partition, read.Key, read.Value, read.Timestamp = record.Partition, record.Key, record.Value, record.Timestamp.UnixMilli()
		for _, header := range record.Headers {
			read.Headers = append(read.Headers, cases.Header{Key: header.Key, Value: header.Value})
		}
		reads = append(reads, read)
	})
	return reads
}

func main() { cases.Main(newAdapter) }
