// Package cases holds what every Go client is put through, over a small Adapter that each client provides.
//
// A program prints "ok CASE" or "FAIL CASE: why" for each case and exits with 1 when one failed.
package cases

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Partitions of every topic.
const Partitions = 6

const deadline = 300 * time.Second

// RequestTimeout of all clients: a machine that is slow must not have them send anything twice, or give it up.
const RequestTimeout = 120 * time.Second

// message.max.bytes of a broker that says nothing else.
const batchBytesMax = 1_048_588

// AnyPartition leaves the choice to the client.
const AnyPartition = int32(-1)

// Header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record to write; the partition may be AnyPartition.
type Record struct {
	Partition  int32
	Key, Value []byte
	Headers    []Header
	Timestamp  int64
}

// Read is a record as a consumer got it.
type Read struct {
	Record
	Offset int64
}

// Result of one sent record. With acks=0 the offset means nothing.
type Result struct {
	Partition int32
	Offset    int64
	Err       error
}

// Settings of a producer; the zero value is the client's default.
type Settings struct {
	Codec         string // "": the client's default
	Acks          string // "": the client's default, else "0", "1", "all"
	Idempotent    bool
	LargeRequests bool // the client's own limit is out of the way
	ShortTimeouts bool // give up on a record within seconds
	Manual        bool // every record names its partition
}

// Producer of one client.
type Producer interface {
	// Send returns when every record is acknowledged or has failed.
	Send(topic string, records []Record) []Result
	Close()
}

// Consumer of all partitions of a topic from its beginning, by assignment.
type Consumer interface {
	// Poll waits some 200 ms for records.
	Poll() []Read
	Close()
}

// Adapter of a client.
type Adapter interface {
	Create(topic string) error
	Delete(topic string) error
	// LeaderCount is -1 when there is no such topic.
	LeaderCount(topic string) (int, error)
	NewProducer(settings Settings) (Producer, error)
	NewConsumer(topic string, shortTimeouts bool) (Consumer, error)
	// Offsets of all partitions: of the first record ("earliest"), the end ("latest").
	Offsets(topic, what string) (map[int32]int64, error)
	// OffsetsAt is -1 where no record is that young.
	OffsetsAt(topic string, timestamp int64) (map[int32]int64, error)
	TooLarge(err error) bool
	HasIdempotence() bool
	// KeepsOrder is false where requests that nothing answers go over whichever connection is free.
	KeepsOrder(settings Settings) bool
	Codecs() []string
}

type failure string

func (f failure) Error() string { return string(f) }

func require(holds bool, format string, arguments ...any) {
	if !holds {
		panic(failure(fmt.Sprintf(format, arguments...)))
	}
}

func must[T any](value T, err error) T {
	require(err == nil, "%v", err)
	return value
}

func waitFor(what string, condition func() bool) {
	for end := time.Now().Add(deadline); !condition(); time.Sleep(20 * time.Millisecond) {
		require(time.Now().Before(end), "gave up waiting: %s", what)
	}
}

// Pattern is the record at position index of a run; the programs in other languages write the same.
func Pattern(index int, base int64, partition int32) Record {
	value := fmt.Appendf(nil, "%d:", index)
	for position := range index * 7 % 100 {
		value = append(value, byte('a'+(index+position)%26))
	}
	record := Record{Partition: partition, Key: fmt.Appendf(nil, "key-%08d", index), Value: value, Timestamp: base + int64(index)}
	if index%3 != 0 {
		record.Headers = []Header{{"n", fmt.Appendf(nil, "%d", index)}, {"empty", []byte{}}}
	}
	return record
}

func baseTimestamp() int64 { return time.Now().UnixMilli() - 3_600_000 }

// check compares every field of a consumed record with what was written for its index, and returns the index.
func check(read Read, base int64) int {
	var index int
	_, err := fmt.Sscanf(string(read.Key), "key-%08d", &index)
	require(err == nil, "a key that nobody wrote: %q", read.Key)
	want := Pattern(index, base, AnyPartition)
	where := fmt.Sprintf("record %d at %d:%d", index, read.Partition, read.Offset)
	require(bytes.Equal(read.Key, want.Key), "%s: key differs", where)
	require(bytes.Equal(read.Value, want.Value), "%s: value differs", where)
	require(read.Timestamp == want.Timestamp, "%s: timestamp %d, want %d", where, read.Timestamp, want.Timestamp)
	same := slices.EqualFunc(read.Headers, want.Headers, func(a, b Header) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) })
	require(same, "%s: headers differ: %v", where, read.Headers)
	return index
}

type runner struct {
	Adapter
	prefix string
}

func (r runner) create(topic string) {
	require(r.Create(topic) == nil, "creating %s failed", topic)
	waitFor("topic "+topic+" has leaders", func() bool { return must(r.LeaderCount(topic)) == Partitions })
	// A broker may name a leader before that one is ready. Producers without idempotence reorder what they then retry.
	waitFor("the leaders of "+topic+" answer", func() bool {
		ends, err := r.Offsets(topic, "latest")
		return err == nil && len(ends) == Partitions
	})
}

func (r runner) remove(topic string) {
	err := r.Delete(topic)
	require(err == nil, "deleting %s: %v", topic, err)
	waitFor("topic "+topic+" is gone", func() bool { return must(r.LeaderCount(topic)) == -1 })
}

func (r runner) total(topic string) (total int) {
	for _, end := range must(r.Offsets(topic, "latest")) {
		total += int(end)
	}
	return total
}

// readAll reads every partition from its beginning to its end as it is now; per partition in the order received.
func (r runner) readAll(topic string) [Partitions][]Read {
	var all [Partitions][]Read
	expected := r.total(topic)
	consumer := must(r.NewConsumer(topic, false))
	defer consumer.Close()
	end := time.Now().Add(deadline)
	for received := 0; received < expected; {
		require(time.Now().Before(end), "read %d of %d records, then nothing more", received, expected)
		for _, read := range consumer.Poll() {
			all[read.Partition] = append(all[read.Partition], read)
			received++
		}
	}
	return all
}

type place struct {
	partition int32
	offset    int64
}

// checkTopic: offsets are contiguous from 0, indexes rise when `ordered`, all fields are as written.
func (r runner) checkTopic(topic string, base int64, ordered bool) map[int]place {
	seen := map[int]place{}
	for partition, reads := range r.readAll(topic) {
		previous := -1
		for offset, read := range reads {
			require(read.Offset == int64(offset), "partition %d: offset %d, want %d", partition, read.Offset, offset)
			index := check(read, base)
			require(index > previous || !ordered, "partition %d: record %d after %d", partition, index, previous)
			previous = index
			_, twice := seen[index]
			require(!twice, "record %d is there twice", index)
			seen[index] = place{int32(partition), int64(offset)}
		}
	}
	return seen
}

func (r runner) writeAndRead(name string, count int, settings Settings) {
	topic, base := r.prefix+"-"+name, baseTimestamp()
	r.create(topic)
	producer := must(r.NewProducer(settings))
	records := make([]Record, count)
	for index := range records {
		records[index] = Pattern(index, base, AnyPartition)
	}
	results := producer.Send(topic, records)
	producer.Close()
	for index, result := range results {
		require(result.Err == nil, "record %d: %v", index, result.Err)
	}
	if settings.Acks == "0" {
		// Nothing says when the broker is done with what it does not acknowledge.
		waitFor(fmt.Sprintf("%d records in %s", count, topic), func() bool { return r.total(topic) >= count })
	}
	seen := r.checkTopic(topic, base, r.KeepsOrder(settings))
	require(len(seen) == count, "read %d records, want %d", len(seen), count)
	for index, result := range results {
		if settings.Acks != "0" {
			require(seen[index] == place{result.Partition, result.Offset}, "record %d: acknowledged at %v, read at %v", index, result, seen[index])
		}
	}
}

// sizes: values of no bytes, just under the largest batch the broker takes, and just over it.
func (r runner) sizes() {
	topic, now := r.prefix+"-sizes", baseTimestamp()
	r.create(topic)
	producer := must(r.NewProducer(Settings{Codec: "none", LargeRequests: true, Manual: true}))
	defer producer.Close()
	send := func(key, value []byte) error {
		return producer.Send(topic, []Record{{Partition: 1, Key: key, Value: value, Timestamp: now}})[0].Err
	}
	// No client frames a lone record in more than 100 bytes beside its value.
	fit := [][2][]byte{{{}, {}}, {nil, {}}, {{}, nil}, {nil, bytes.Repeat([]byte{0x5a, 1, 2}, batchBytesMax)[:batchBytesMax-100]}, {nil, []byte("after")}}
	for _, record := range fit[:4] {
		err := send(record[0], record[1])
		require(err == nil, "%d bytes: %v", len(record[1]), err)
	}
	err := send(nil, make([]byte, batchBytesMax-60))
	require(err != nil, "a batch larger than message.max.bytes was taken")
	require(r.TooLarge(err), "too large a batch: %v", err)
	err = send(fit[4][0], fit[4][1])
	require(err == nil, "after the error: %v", err)
	reads := r.readAll(topic)[1]
	require(len(reads) == len(fit), "read %d records, want %d", len(reads), len(fit))
	for offset, read := range reads {
		require(read.Offset == int64(offset), "offset %d, want %d", read.Offset, offset)
		require(bytes.Equal(read.Key, fit[offset][0]) && bytes.Equal(read.Value, fit[offset][1]), "record at %d differs", offset)
	}
}

// offsets: earliest, latest and by timestamp, on partitions that have records and on one that has none.
func (r runner) offsets() {
	const count, written = 5_000, 5
	topic, base := r.prefix+"-offsets", baseTimestamp()
	r.create(topic)
	producer := must(r.NewProducer(Settings{Manual: true}))
	records := make([]Record, count)
	for index := range records {
		records[index] = Pattern(index, base, int32(index%written))
	}
	// In pieces, so that there are many batches to search.
	for piece := range slices.Chunk(records, 500) {
		for _, result := range producer.Send(topic, piece) {
			require(result.Err == nil, "%v", result.Err)
		}
	}
	producer.Close()
	earliest, latest := must(r.Offsets(topic, "earliest")), must(r.Offsets(topic, "latest"))
	for partition := range int32(Partitions) {
		end := int64(0)
		if partition < written {
			end = count / written
		}
		require(earliest[partition] == 0, "partition %d: earliest is %d", partition, earliest[partition])
		require(latest[partition] == end, "partition %d: latest is %d, want %d", partition, latest[partition], end)
	}
	for _, index := range []int{-1_000_000, 0, 1, 7, 2_500, count - written, count - 1, count, count + 1_000_000} {
		found := must(r.OffsetsAt(topic, base+int64(index)))
		for partition := range Partitions {
			start := max(index, 0)
			first := start + ((partition-start)%written+written)%written
			want := int64(-1)
			if partition < written && first < count {
				want = int64(first / written)
			}
			require(found[int32(partition)] == want, "partition %d, timestamp of %d: %d, want %d", partition, index, found[int32(partition)], want)
		}
	}
}

// recreation is a topic deleted and re-created while a producer writes to it and a consumer reads from it: both must find the new one.
type recreation struct {
	runner
	topic string
	base  int64

	lock sync.Mutex
	next int
	// The first index sent after the new topic was there; a larger one can only be in the new topic.
	firstOfNew                            int
	readOfOld, readOfNew, acknowledgedNew int
	acknowledged                          map[int]place
	stop                                  bool
	died                                  error
}

func (r runner) recreate() {
	const enough = 300
	one := &recreation{runner: r, topic: r.prefix + "-recreate", base: baseTimestamp(), firstOfNew: 1 << 60, acknowledged: map[int]place{}}
	r.create(one.topic)
	var running sync.WaitGroup
	running.Go(func() { one.guard(one.write) })
	running.Go(func() { one.guard(one.read) })
	func() {
		defer func() {
			one.locked(func() { one.stop = true })
			running.Wait()
		}()
		one.waitFor("records of the first topic are read", func() bool { return one.readOfOld >= enough })
		r.remove(one.topic)
		r.create(one.topic)
		one.locked(func() { one.firstOfNew = one.next + 1 })
		one.waitFor("records of the second topic are acknowledged", func() bool { return one.acknowledgedNew >= enough })
		one.waitFor("records of the second topic are read by the running consumer", func() bool { return one.readOfNew >= enough })
	}()
	seen := r.checkTopic(one.topic, one.base, true)
	for index, where := range one.acknowledged {
		require(index < one.firstOfNew || seen[index] == where, "record %d acknowledged at %v, found at %v", index, where, seen[index])
	}
}

func (one *recreation) locked(body func()) {
	one.lock.Lock()
	defer one.lock.Unlock()
	body()
}

func (one *recreation) guard(body func()) {
	defer func() {
		if problem := recover(); problem != nil {
			one.locked(func() { one.died = fmt.Errorf("%v", problem) })
		}
	}()
	body()
}

func (one *recreation) waitFor(what string, condition func() bool) {
	waitFor(what, func() (holds bool) {
		one.locked(func() {
			require(one.died == nil, "producer or consumer died, waiting until %s: %v", what, one.died)
			holds = condition()
		})
		return holds
	})
}

func (one *recreation) stopped() (stop bool) {
	one.locked(func() { stop = one.stop })
	return stop
}

func (one *recreation) write() {
	producer := must(one.NewProducer(Settings{ShortTimeouts: true, Manual: true}))
	defer producer.Close()
	for !one.stopped() {
		first := 0
		one.locked(func() { first = one.next; one.next += 20 })
		records := make([]Record, 20)
		for position := range records {
			records[position] = Pattern(first+position, one.base, int32((first+position)%Partitions))
		}
		failed := error(nil)
		for position, result := range producer.Send(one.topic, records) {
			if result.Err != nil {
				failed = result.Err
				continue
			}
			one.locked(func() {
				one.acknowledged[first+position] = place{result.Partition, result.Offset}
				if first+position >= one.firstOfNew {
					one.acknowledgedNew++
				}
			})
		}
		if failed != nil {
			fmt.Fprintln(os.Stderr, "running producer:", failed)
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (one *recreation) read() {
	consumer := must(one.NewConsumer(one.topic, true))
	defer consumer.Close()
	for !one.stopped() {
		for _, read := range consumer.Poll() {
			index := check(read, one.base)
			one.locked(func() {
				if index >= one.firstOfNew {
					one.readOfNew++
				} else {
					one.readOfOld++
				}
			})
		}
	}
}

type oneCase struct {
	name string
	body func()
}

func (r runner) all() []oneCase {
	writeAndRead := func(name string, count int, settings Settings) oneCase {
		return oneCase{name, func() { r.writeAndRead(name, count, settings) }}
	}
	list := []oneCase{writeAndRead("default", 100_000, Settings{})}
	for _, codec := range r.Codecs() {
		list = append(list, writeAndRead("codec-"+codec, 5_000, Settings{Codec: codec}))
	}
	for _, acks := range []string{"0", "1", "all"} {
		list = append(list, writeAndRead("acks-"+acks, 5_000, Settings{Acks: acks}))
	}
	if r.HasIdempotence() {
		list = append(list, writeAndRead("idempotent", 20_000, Settings{Acks: "all", Idempotent: true}))
	}
	return append(list, oneCase{"sizes", r.sizes}, oneCase{"offsets", r.offsets}, oneCase{"recreate", r.recreate})
}

// Main runs the cases named on the command line, or all: BOOTSTRAP PREFIX [CASE...].
func Main(adapter func(bootstrap string) (Adapter, error)) {
	wanted, failures := os.Args[3:], 0
	client, err := adapter(os.Args[1])
	if err != nil {
		fmt.Println("FAIL start:", err)
		os.Exit(1)
	}
	for _, one := range (runner{client, os.Args[2]}).all() {
		if len(wanted) > 0 && !slices.Contains(wanted, one.name) {
			continue
		}
		if err := run(one.body); err != nil {
			failures++
			fmt.Printf("FAIL %s: %v\n", one.name, err)
		} else {
			fmt.Println("ok", one.name)
		}
	}
	if failures > 0 {
		os.Exit(1)
	}
}

func run(body func()) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			var expected failure
			if as, ok := problem.(error); !ok || !errors.As(as, &expected) {
				panic(problem)
			}
			err = expected
		}
	}()
	body()
	return nil
}
