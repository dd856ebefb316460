package walser;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RecordTooLargeException;

/** Values of no bytes, of exactly the largest batch the broker takes, and of one byte more. */
final class Sizes {
    /** {@code message.max.bytes} of a broker that says nothing else. */
    private static final int BATCH_BYTES_MAX = 1_048_588;
    /** Batch header, then of the only record: 3 bytes of length, attributes, two deltas, key length, 3 bytes of value length, header count. */
    private static final int OVERHEAD_BYTES = 61 + 3 + 1 + 1 + 1 + 1 + 3 + 1;

    private final Cluster cluster;
    private final String prefix;

    Sizes(Cluster cluster, String prefix) {
        this.cluster = cluster;
        this.prefix = prefix;
    }

    void run() throws Exception {
        String topic = prefix + "-sizes";
        cluster.create(topic);
        int largest = BATCH_BYTES_MAX - OVERHEAD_BYTES;
        List<ProducerRecord<byte[], byte[]>> fit = new ArrayList<>();
        fit.add(new ProducerRecord<>(topic, 1, new byte[0], new byte[0]));
        fit.add(new ProducerRecord<>(topic, 1, null, new byte[0]));
        fit.add(new ProducerRecord<>(topic, 1, new byte[0], null));
        fit.add(new ProducerRecord<>(topic, 1, null, null));
        fit.add(new ProducerRecord<>(topic, 1, null, filled(largest, 1)));
        try (KafkaProducer<byte[], byte[]> producer = cluster.producer(Map.of("max.request.size", 4_000_000, "batch.size", 0))) {
            for (ProducerRecord<byte[], byte[]> record : fit) {
                producer.send(record).get();
            }
            try {
                producer.send(new ProducerRecord<>(topic, 1, null, filled(largest + 1, 2))).get();
                throw new Failure("a batch of one byte more than message.max.bytes was taken");
            } catch (ExecutionException error) {
                Failure.unless(error.getCause() instanceof RecordTooLargeException, "too large a batch: " + error.getCause());
            }
            fit.add(new ProducerRecord<>(topic, 1, null, filled(1000, 3)));
            producer.send(fit.get(fit.size() - 1)).get();
        }
        List<ConsumerRecord<byte[], byte[]>> read = cluster.readAll(topic).get(1);
        Failure.unless(read.size() == fit.size(), "read " + read.size() + " records, want " + fit.size());
        for (int position = 0; position < fit.size(); position++) {
            ConsumerRecord<byte[], byte[]> record = read.get(position);
            Failure.unless(record.offset() == position, "offset " + record.offset() + ", want " + position);
            Failure.unless(Arrays.equals(record.key(), fit.get(position).key()), "key at " + position + " differs");
            Failure.unless(Arrays.equals(record.value(), fit.get(position).value()), "value at " + position + " differs");
        }
    }

    /** Partition 1 holds one value of each of these sizes, as another program wrote it. */
    void verify(String topic, String[] sizes) {
        List<ConsumerRecord<byte[], byte[]>> read = cluster.readAll(topic).get(1);
        Failure.unless(read.size() == sizes.length, "read " + read.size() + " records, want " + sizes.length);
        for (int position = 0; position < sizes.length; position++) {
            int bytes = Integer.parseInt(sizes[position]);
            Failure.unless(read.get(position).key() == null, "key at " + position + " is not null");
            Failure.unless(Arrays.equals(read.get(position).value(), filled(bytes, bytes)), "value at " + position + " differs");
        }
    }

    private static byte[] filled(int bytes, int seed) {
        byte[] value = new byte[bytes];
        for (int position = 0; position < bytes; position++) {
            value[position] = (byte) (position * 31 + seed);
        }
        return value;
    }
}
