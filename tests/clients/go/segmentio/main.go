// segmentio's kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"walser/tests/clients/cases"
)

var background = context.Background()

type adapter struct {
	bootstrap string
	client    *kafka.Client
}

func newAdapter(bootstrap string) (cases.Adapter, error) {
	address, err := net.ResolveTCPAddr("tcp", bootstrap)
	// Metadata younger than this is answered from memory, and a topic just made would not be there.
	transport := &kafka.Transport{MetadataTTL: 50 * time.Millisecond}
	return &adapter{bootstrap, &kafka.Client{Addr: address, Timeout: cases.RequestTimeout, Transport: transport}}, err
}

func (a *adapter) Codecs() []string     { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }
func (a *adapter) HasIdempotence() bool { return false }

// A connection is given back as soon as a request without acks is written, and the partition's next one may take another.
func (a *adapter) KeepsOrder(settings cases.Settings) bool { return settings.Acks != "0" }

func (a *adapter) TooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge)
}

func (a *adapter) Create(topic string) error {
	response, err := a.client.CreateTopics(background, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: cases.Partitions, ReplicationFactor: 1}},
	})
	if err != nil {
		return err
	}
	return response.Errors[topic]
}

func (a *adapter) Delete(topic string) error {
	response, err := a.client.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return response.Errors[topic]
}

func (a *adapter) LeaderCount(topic string) (int, error) {
	response, err := a.client.Metadata(background, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	found := response.Topics[0]
	if errors.Is(found.Error, kafka.UnknownTopicOrPartition) {
		return -1, nil
	}
	leaders := 0
	for _, partition := range found.Partitions {
		if partition.Leader.Port != 0 {
			leaders++
		}
	}
	return leaders, found.Error
}

func (a *adapter) list(topic string, request func(partition int) kafka.OffsetRequest) (map[int32]kafka.PartitionOffsets, error) {
	var requests []kafka.OffsetRequest
	for partition := range cases.Partitions {
		requests = append(requests, request(partition))
	}
	response, err := a.client.ListOffsets(background, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return nil, err
	}
	found := map[int32]kafka.PartitionOffsets{}
	for _, one := range response.Topics[topic] {
		if one.Error != nil {
			return nil, one.Error
		}
		found[int32(one.Partition)] = one
	}
	return found, nil
}

func (a *adapter) Offsets(topic, what string) (map[int32]int64, error) {
	request := kafka.FirstOffsetOf
	if what == "latest" {
		request = kafka.LastOffsetOf
	}
	listed, err := a.list(topic, request)
	found := map[int32]int64{}
	for partition, one := range listed {
		found[partition] = one.FirstOffset
		if what == "latest" {
			found[partition] = one.LastOffset
		}
	}
	return found, err
}

func (a *adapter) OffsetsAt(topic string, timestamp int64) (map[int32]int64, error) {
	listed, err := a.list(topic, func(partition int) kafka.OffsetRequest {
		return kafka.TimeOffsetOf(partition, time.UnixMilli(timestamp))
	})
	found := map[int32]int64{}
	for partition, one := range listed {
		found[partition] = -1
		for offset := range one.Offsets {
			found[partition] = offset
		}
	}
	return found, err
}

type producer struct {
	writer *kafka.Writer
	lock   sync.Mutex
	// By the position a message was sent at.
	results map[int]cases.Result
}

// place is what a message carries through the library.
type place struct {
	position  int
	partition int32
}

type balancer struct{ fallback kafka.Balancer }

func (b balancer) Balance(message kafka.Message, partitions ...int) int {
	if one := message.WriterData.(place); one.partition >= 0 {
		return int(one.partition)
	}
	return b.fallback.Balance(message, partitions...)
}

func (a *adapter) NewProducer(settings cases.Settings) (cases.Producer, error) {
	one := &producer{results: map[int]cases.Result{}}
	one.writer = &kafka.Writer{
		Addr:         a.client.Addr,
		Balancer:     balancer{&kafka.RoundRobin{}},
		BatchTimeout: 10 * time.Millisecond,
		ReadTimeout:  cases.RequestTimeout,
		WriteTimeout: cases.RequestTimeout,
		Transport:    &kafka.Transport{MetadataTTL: time.Second},
		RequiredAcks: kafka.RequireAll,
		Completion: func(messages []kafka.Message, err error) {
			one.lock.Lock()
			defer one.lock.Unlock()
			for _, message := range messages {
				one.results[message.WriterData.(place).position] = cases.Result{Partition: int32(message.Partition), Offset: message.Offset, Err: err}
			}
		},
	}
	codecs := map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	one.writer.Compression = codecs[settings.Codec]
	acks := map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}
	if settings.Acks != "" {
		one.writer.RequiredAcks = acks[settings.Acks]
	}
	if settings.LargeRequests {
		one.writer.BatchBytes = 4_000_000
	}
	return one, nil
}

func (p *producer) Close() { _ = p.writer.Close() }

func (p *producer) Send(topic string, records []cases.Record) []cases.Result {
	messages := make([]kafka.Message, len(records))
	for position, record := range records {
		messages[position] = kafka.Message{Topic: topic, Key: record.Key, Value: record.Value, Time: time.UnixMilli(record.Timestamp), WriterData: place{position, record.Partition}}
		for _, header := range record.Headers {
			messages[position].Headers = append(messages[position].Headers, kafka.Header{Key: header.Key, Value: header.Value})
		}
	}
	p.lock.Lock()
	p.results = map[int]cases.Result{}
	p.lock.Unlock()
	err := p.writer.WriteMessages(background, messages...)
	p.lock.Lock()
	defer p.lock.Unlock()
	results := make([]cases.Result, len(records))
	for position := range results {
		result, reported := p.results[position]
		if !reported {
			// Refused before it was sent.
			result.Err = errors.Join(errors.New("not sent"), err)
		}
		results[position] = result
	}
	return results
}

type consumer struct {
	readers  []*kafka.Reader
	messages chan kafka.Message
	running  sync.WaitGroup
	cancel   context.CancelFunc
}

func (a *adapter) NewConsumer(topic string, shortTimeouts bool) (cases.Consumer, error) {
	limited, cancel := context.WithCancel(background)
	one := &consumer{messages: make(chan kafka.Message, 1000), cancel: cancel}
	for partition := range cases.Partitions {
		settings := kafka.ReaderConfig{Brokers: []string{a.bootstrap}, Topic: topic, Partition: partition, MaxWait: 100 * time.Millisecond, MaxBytes: 4_000_000}
		if shortTimeouts {
			settings.ReadBackoffMax = 200 * time.Millisecond
		}
		reader := kafka.NewReader(settings)
		one.readers = append(one.readers, reader)
		one.running.Go(func() { one.forward(limited, reader) })
	}
	return one, nil
}

func (c *consumer) forward(limited context.Context, reader *kafka.Reader) {
	for {
		message, err := reader.ReadMessage(limited)
		switch {
		case limited.Err() != nil:
			return
		case err != nil:
			// Between two topics of the same name there is none; the case asserts that reading goes on.
			fmt.Fprintln(os.Stderr, "running consumer:", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		select {
		case c.messages <- message:
		case <-limited.Done():
			return
		}
	}
}

func (c *consumer) Close() {
	c.cancel()
	c.running.Wait()
	for _, reader := range c.readers {
		_ = reader.Close()
	}
}

func (c *consumer) Poll() (reads []cases.Read) {
	timeout := time.After(200 * time.Millisecond)
	for len(reads) < 10_000 {
		select {
		case message := <-c.messages:
			read := cases.Read{Offset: message.Offset}
			read.Partition, read.Key, read.Value, read.Timestamp = int32(message.Partition), message.Key, message.Value, message.Time.UnixMilli()
			for _, header := range message.Headers {
				read.Headers = append(read.Headers, cases.Header{Key: header.Key, Value: header.Value})
			}
			reads = append(reads, read)
		case <-timeout:
			return reads
		}
	}
	return reads
}

func main() { cases.Main(newAdapter) }
