package walser;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** Earliest, latest and by timestamp, on partitions that have records and on one that has none. */
final class Offsets {
    private static final int COUNT = 5_000;
    private static final int WRITTEN_PARTITIONS = 5;

    private final Cluster cluster;
    private final String prefix;

    Offsets(Cluster cluster, String prefix) {
        this.cluster = cluster;
        this.prefix = prefix;
    }

    void run() throws Exception {
        String topic = prefix + "-offsets";
        Pattern pattern = new Pattern(System.currentTimeMillis() - 3_600_000);
        cluster.create(topic);
        try (KafkaProducer<byte[], byte[]> producer = cluster.producer(Map.of("batch.size", 1000))) {
            for (int index = 0; index < COUNT; index++) {
                producer.send(pattern.record(topic, index % WRITTEN_PARTITIONS, index));
            }
        }
        List<TopicPartition> partitions = Cluster.partitions(topic);
        try (KafkaConsumer<byte[], byte[]> consumer = cluster.consumer()) {
            for (TopicPartition partition : partitions) {
                long end = partition.partition() < WRITTEN_PARTITIONS ? COUNT / WRITTEN_PARTITIONS : 0;
                Failure.unless(consumer.beginningOffsets(partitions).get(partition) == 0, partition + ": earliest is not 0");
                Failure.unless(consumer.endOffsets(partitions).get(partition) == end, partition + ": latest is not " + end);
            }
            for (int index : new int[] {0, 1, 7, 2_500, COUNT - WRITTEN_PARTITIONS, COUNT - 1, COUNT, COUNT + 1_000_000}) {
                byTimestamp(consumer, partitions, pattern, index);
            }
            byTimestamp(consumer, partitions, pattern, -1_000_000);
        }
    }

    /** The first record at or after the timestamp of {@code index}; nothing where there is none. */
    private void byTimestamp(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions, Pattern pattern, int index) {
        Map<TopicPartition, Long> query = new HashMap<>();
        for (TopicPartition partition : partitions) {
            query.put(partition, pattern.timestamp(index));
        }
        Map<TopicPartition, OffsetAndTimestamp> answer = consumer.offsetsForTimes(query);
        for (TopicPartition partition : partitions) {
            OffsetAndTimestamp found = answer.get(partition);
            int from = Math.max(index, 0);
            int first = from + Math.floorMod(partition.partition() - from, WRITTEN_PARTITIONS);
            if (partition.partition() >= WRITTEN_PARTITIONS || first >= COUNT) {
                Failure.unless(found == null, partition + ", timestamp of " + index + ": " + found + ", want nothing");
                continue;
            }
            Failure.unless(found != null && found.offset() == first / WRITTEN_PARTITIONS && found.timestamp() == pattern.timestamp(first),
                partition + ", timestamp of " + index + ": " + found + ", want offset " + first / WRITTEN_PARTITIONS + " timestamp " + pattern.timestamp(first));
        }
    }
}
