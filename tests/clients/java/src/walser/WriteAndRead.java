package walser;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Writes the pattern, reads it back, and holds every record against its acknowledgement and against the pattern. */
final class WriteAndRead {
    private final Cluster cluster;
    private final String prefix;

    WriteAndRead(Cluster cluster, String prefix) {
        this.cluster = cluster;
        this.prefix = prefix;
    }

    void writeAndRead(String name, int count, Map<String, Object> settings) throws Exception {
        String topic = prefix + "-" + name;
        Pattern pattern = new Pattern(System.currentTimeMillis() - 3_600_000);
        cluster.create(topic);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = cluster.producer(settings)) {
            for (int index = 0; index < count; index++) {
                sent.add(producer.send(pattern.record(topic, null, index)));
            }
            producer.flush();
        }
        boolean acknowledged = !"0".equals(settings.get("acks"));
        if (!acknowledged) {
            // Nothing says when the broker is done with what it does not acknowledge.
            Cluster.waitFor(count + " records in " + topic, () -> endOffsets(topic) >= count);
        }
        int[] seen = check(topic, pattern, count, count);
        for (int index = 0; index < count; index++) {
            RecordMetadata metadata = sent.get(index).get(1, TimeUnit.SECONDS);
            Failure.unless(metadata.partition() == seen[2 * index], "record " + index + ": acknowledged in another partition");
            Failure.unless(!acknowledged || metadata.offset() == seen[2 * index + 1],
                "record " + index + ": acknowledged at offset " + metadata.offset() + ", read at " + seen[2 * index + 1]);
            Failure.unless(!acknowledged || metadata.timestamp() == pattern.timestamp(index), "record " + index + ": timestamp of the acknowledgement");
        }
    }

    /** What another program wrote to the topic is the pattern: {@code count} records, or with {@code +} before it at least so many. */
    void verify(String topic, String count, long baseTimestamp) throws InterruptedException {
        int least = Integer.parseInt(count);
        Cluster.waitFor(count + " records in " + topic, () -> endOffsets(topic) >= least);
        if (count.startsWith("+")) {
            int[] seen = check(topic, new Pattern(baseTimestamp), 10_000_000, -1);
            Failure.unless(seen[seen.length - 1] >= least, "read " + seen[seen.length - 1] + " records, want " + count);
        } else {
            check(topic, new Pattern(baseTimestamp), least, least);
        }
    }

    private long endOffsets(String topic) {
        try (var consumer = cluster.consumer()) {
            return consumer.endOffsets(Cluster.partitions(topic)).values().stream().mapToLong(Long::longValue).sum();
        }
    }

    /**
     * Partition and offset of each index below {@code limit}, then how many records there were; fails on a record that is
     * out of order or changed and, when {@code count} is not negative, on one that is missing or twice there.
     */
    private int[] check(String topic, Pattern pattern, int limit, int count) {
        int[] seen = new int[2 * limit + 1];
        int found = 0;
        for (List<ConsumerRecord<byte[], byte[]>> records : cluster.readAll(topic)) {
            int previous = -1;
            for (int offset = 0; offset < records.size(); offset++) {
                ConsumerRecord<byte[], byte[]> record = records.get(offset);
                Failure.unless(record.offset() == offset, "partition " + record.partition() + ": offset " + record.offset() + ", want " + offset);
                int index = pattern.check(record);
                Failure.unless(index > previous, "partition " + record.partition() + ": record " + index + " after " + previous);
                Failure.unless(index < limit, "record " + index + " was never written");
                previous = index;
                seen[2 * index] = record.partition();
                seen[2 * index + 1] = offset;
                found++;
            }
        }
        // Rising indexes within a partition leave only a record that is in two partitions.
        Failure.unless(count < 0 || found == count, "read " + found + " records, want " + count);
        seen[2 * limit] = found;
        return seen;
    }
}
