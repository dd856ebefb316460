// sarama.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"walser/tests/clients/cases"
)

type adapter struct {
	bootstrap string
	admin     sarama.ClusterAdmin
	client    sarama.Client
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = "walser-tests"
	config.Admin.Timeout, config.Producer.Timeout = cases.RequestTimeout, cases.RequestTimeout
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = cases.RequestTimeout, 2*cases.RequestTimeout, cases.RequestTimeout
	return config
}

func newAdapter(bootstrap string) (cases.Adapter, error) {
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	return &adapter{bootstrap, admin, client}, err
}

func (a *adapter) Codecs() []string               { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }
func (a *adapter) HasIdempotence() bool           { return true }
func (a *adapter) KeepsOrder(cases.Settings) bool { return true }
func (a *adapter) TooLarge(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge)
}

func (a *adapter) Create(topic string) error {
	return a.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: cases.Partitions, ReplicationFactor: 1}, false)
}

func (a *adapter) Delete(topic string) error { return a.admin.DeleteTopic(topic) }

func (a *adapter) LeaderCount(topic string) (int, error) {
	found, err := a.admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if errors.Is(found[0].Err, sarama.ErrUnknownTopicOrPartition) {
		return -1, nil
	}
	leaders := 0
	for _, partition := range found[0].Partitions {
		if partition.Leader >= 0 {
			leaders++
		}
	}
	return leaders, nil
}

func (a *adapter) Offsets(topic, what string) (map[int32]int64, error) {
	if what == "latest" {
		return a.OffsetsAt(topic, sarama.OffsetNewest)
	}
	return a.OffsetsAt(topic, sarama.OffsetOldest)
}

func (a *adapter) OffsetsAt(topic string, timestamp int64) (map[int32]int64, error) {
	found := map[int32]int64{}
	for partition := range int32(cases.Partitions) {
		offset, err := a.client.GetOffset(topic, partition, timestamp)
		if err != nil {
			return nil, err
		}
		found[partition] = offset
	}
	return found, nil
}

type producer struct {
	producer sarama.AsyncProducer
	done     sync.WaitGroup
}

func (a *adapter) NewProducer(settings cases.Settings) (cases.Producer, error) {
	config := config()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = func(topic string) sarama.Partitioner {
		return &partitioner{sarama.NewHashPartitioner(topic)}
	}
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	if settings.Codec != "" {
		config.Producer.Compression = codecs[settings.Codec]
	}
	acks := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	if settings.Acks != "" {
		config.Producer.RequiredAcks = acks[settings.Acks]
	}
	config.Producer.Idempotent = settings.Idempotent
	if settings.Idempotent {
		config.Net.MaxOpenRequests = 1
	}
	if settings.LargeRequests {
		config.Producer.MaxMessageBytes = 4_000_000
	}
	if settings.ShortTimeouts {
		config.Producer.Retry.Max = 10
		config.Metadata.RefreshFrequency = time.Second
	}
	started, err := sarama.NewAsyncProducer([]string{a.bootstrap}, config)
	if err != nil {
		return nil, err
	}
	one := &producer{producer: started}
	go func() {
		for message := range started.Successes() {
			*message.Metadata.(*cases.Result) = cases.Result{Partition: message.Partition, Offset: message.Offset}
			one.done.Done()
		}
	}()
	go func() {
		for failed := range started.Errors() {
			*failed.Msg.Metadata.(*cases.Result) = cases.Result{Err: failed.Err}
			one.done.Done()
		}
	}()
	return one, nil
}

// A partition of -1 is for the default partitioner, any other is taken as it stands.
type partitioner struct{ fallback sarama.Partitioner }

func (p *partitioner) RequiresConsistency() bool { return true }

func (p *partitioner) Partition(message *sarama.ProducerMessage, count int32) (int32, error) {
	if message.Partition >= 0 {
		return message.Partition, nil
	}
	return p.fallback.Partition(message, count)
}

func (p *producer) Close() { p.producer.AsyncClose() }

func (p *producer) Send(topic string, records []cases.Record) []cases.Result {
	results := make([]cases.Result, len(records))
	p.done.Add(len(records))
	for position, record := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: record.Partition, Timestamp: time.UnixMilli(record.Timestamp), Metadata: &results[position]}
		if record.Key != nil {
			message.Key = sarama.ByteEncoder(record.Key)
		}
		if record.Value != nil {
			message.Value = sarama.ByteEncoder(record.Value)
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
		}
		p.producer.Input() <- message
	}
	p.done.Wait()
	return results
}

type consumer struct {
	consumer sarama.Consumer
	messages chan *sarama.ConsumerMessage
	closing  chan struct{}
	running  sync.WaitGroup
	topic    string
}

func (a *adapter) NewConsumer(topic string, shortTimeouts bool) (cases.Consumer, error) {
	config := config()
	config.Consumer.Return.Errors = true
	if shortTimeouts {
		config.Metadata.RefreshFrequency = time.Second
		config.Consumer.Retry.Backoff = 200 * time.Millisecond
	}
	started, err := sarama.NewConsumer([]string{a.bootstrap}, config)
	if err != nil {
		return nil, err
	}
	one := &consumer{consumer: started, messages: make(chan *sarama.ConsumerMessage, 1000), closing: make(chan struct{}), topic: topic}
	for partition := range int32(cases.Partitions) {
		reader, err := started.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		one.running.Go(func() { one.forward(partition, reader) })
	}
	return one, nil
}

// forward hands on what a partition has. The library ends a partition whose offset is out of range, as it is when a topic
// has been re-created, and leaves it to the program to start it anew.
func (c *consumer) forward(partition int32, reader sarama.PartitionConsumer) {
	for reader != nil {
		messages, problems := reader.Messages(), reader.Errors()
		for messages != nil {
			select {
			case message, open := <-messages:
				if !open {
					messages = nil
				} else if !c.hand(message) {
					reader.AsyncClose()
				}
			case err := <-problems:
				if err != nil {
					fmt.Fprintln(os.Stderr, "running consumer:", err)
				}
			case <-c.closing:
				reader.AsyncClose()
				for range messages {
				}
				return
			}
		}
		reader = c.restart(partition)
	}
}

func (c *consumer) hand(message *sarama.ConsumerMessage) bool {
	select {
	case c.messages <- message:
		return true
	case <-c.closing:
		return false
	}
}

// restart is nil when the consumer is being closed.
func (c *consumer) restart(partition int32) sarama.PartitionConsumer {
	for {
		select {
		case <-c.closing:
			return nil
		case <-time.After(50 * time.Millisecond):
		}
		reader, err := c.consumer.ConsumePartition(c.topic, partition, sarama.OffsetOldest)
		if err == nil {
			return reader
		}
		fmt.Fprintln(os.Stderr, "running consumer:", err)
	}
}

func (c *consumer) Close() {
	close(c.closing)
	c.running.Wait()
	_ = c.consumer.Close()
}

func (c *consumer) Poll() (reads []cases.Read) {
	timeout := time.After(200 * time.Millisecond)
	for len(reads) < 10_000 {
		select {
		case message := <-c.messages:
			read := cases.Read{Offset: message.Offset}
			read.Partition, read.Key, read.Value, read.Timestamp = message.Partition, message.Key, message.Value, message.Timestamp.UnixMilli()
			for _, header := range message.Headers {
				read.Headers = append(read.Headers, cases.Header{Key: string(header.Key), Value: header.Value})
			}
			reads = append(reads, read)
		case <-timeout:
			return reads
		}
	}
	return reads
}

func main() { cases.Main(newAdapter) }
