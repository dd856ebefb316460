package walser;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * The record that every program here writes at position {@code index} of a run: key, value, headers and timestamp follow
 * from the index, so a reader can rebuild the record and compare every byte of it.
 *
 * <p>key {@code key-%08d}; value {@code <index>:} and {@code index * 7 % 100} letters; two headers, except that every
 * third record has none; timestamp {@code base + index}. The programs in other languages write the same.
 */
final class Pattern {
    final long baseTimestamp;

    Pattern(long baseTimestamp) {
        this.baseTimestamp = baseTimestamp;
    }

    static byte[] key(int index) {
        return String.format("key-%08d", index).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] value(int index) {
        int letters = (int) ((long) index * 7 % 100);
        StringBuilder text = new StringBuilder().append(index).append(':');
        for (int position = 0; position < letters; position++) {
            text.append((char) ('a' + (index + position) % 26));
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    static List<Header> headers(int index) {
        List<Header> headers = new ArrayList<>();
        if (index % 3 != 0) {
            headers.add(new RecordHeader("n", Integer.toString(index).getBytes(StandardCharsets.UTF_8)));
            headers.add(new RecordHeader("empty", new byte[0]));
        }
        return headers;
    }

    long timestamp(int index) {
        return baseTimestamp + index;
    }

    ProducerRecord<byte[], byte[]> record(String topic, Integer partition, int index) {
        return new ProducerRecord<>(topic, partition, timestamp(index), key(index), value(index), headers(index));
    }

    static int indexOf(ConsumerRecord<byte[], byte[]> record) {
        String key = new String(record.key(), StandardCharsets.UTF_8);
        if (!key.matches("key-\\d{8}")) {
            throw new Failure("a key that nobody wrote: " + key + " at " + record.partition() + ":" + record.offset());
        }
        return Integer.parseInt(key.substring(4));
    }

    /** Compares every field of a consumed record with what was written for its index; returns the index. */
    int check(ConsumerRecord<byte[], byte[]> record) {
        int index = indexOf(record);
        String where = "record " + index + " at " + record.partition() + ":" + record.offset();
        Failure.unless(Arrays.equals(record.value(), value(index)), where + ": value differs");
        Failure.unless(record.timestamp() == timestamp(index), where + ": timestamp " + record.timestamp() + ", want " + timestamp(index));
        Failure.unless(record.headers().toArray().length == headers(index).size()
            && Arrays.asList(record.headers().toArray()).equals(headers(index)), where + ": headers differ: " + record.headers());
        return index;
    }
}
