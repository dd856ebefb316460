package walser;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;

/** Deletes and re-creates a topic while a producer writes to it and a consumer reads from it: both must find the new one. */
final class Recreate {
    private static final int ENOUGH = 300;

    private final Cluster cluster;
    private final String topic;
    private final Pattern pattern = new Pattern(System.currentTimeMillis() - 3_600_000);
    /** First index that was sent after the new topic was there; a larger one can only be in the new topic. */
    private volatile int firstOfNew = Integer.MAX_VALUE;
    private volatile boolean stop;
    private volatile Throwable died;
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger readOfOld = new AtomicInteger();
    private final AtomicInteger readOfNew = new AtomicInteger();
    private final Map<Integer, long[]> acknowledged = new ConcurrentHashMap<>();

    Recreate(Cluster cluster, String prefix) {
        this.cluster = cluster;
        this.topic = prefix + "-recreate";
    }

    void run() throws Exception {
        cluster.create(topic);
        Thread writer = start(this::write);
        Thread reader = start(this::read);
        try {
            waitFor("records of the first topic are read", () -> readOfOld.get() >= ENOUGH);
            cluster.delete(topic);
            cluster.create(topic);
            firstOfNew = next.get() + 1;
            waitFor("records of the second topic are acknowledged", () -> acknowledgedOfNew() >= ENOUGH);
            waitFor("records of the second topic are read by the running consumer", () -> readOfNew.get() >= ENOUGH);
        } finally {
            stop = true;
            writer.join();
            reader.join();
        }
        check();
    }

    private Thread start(Runnable body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable error) {
                died = error;
            }
        });
        thread.start();
        return thread;
    }

    private void waitFor(String what, java.util.function.BooleanSupplier condition) throws InterruptedException {
        Cluster.waitFor(what, () -> {
            if (died != null) {
                throw new IllegalStateException("producer or consumer died, waiting until " + what, died);
            }
            return condition.getAsBoolean();
        });
    }

    private long acknowledgedOfNew() {
        int first = firstOfNew;
        return acknowledged.keySet().stream().filter(index -> index >= first).count();
    }

    private void write() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("metadata.max.age.ms", 1_000);
        // A batch that is sent again, here because the topic was gone, is overtaken by the next one where old clients number none.
        settings.put("max.in.flight.requests.per.connection", 1);
        try (KafkaProducer<byte[], byte[]> producer = cluster.producer(settings)) {
            while (!stop) {
                for (int count = 0; count < 20; count++) {
                    int index = next.getAndIncrement();
                    producer.send(pattern.record(topic, index % Cluster.PARTITIONS, index), (metadata, error) -> {
                        if (error == null) {
                            acknowledged.put(index, new long[] {metadata.partition(), metadata.offset()});
                        }
                    });
                }
                producer.flush();
            }
        }
    }

    private void read() {
        try (KafkaConsumer<byte[], byte[]> consumer = cluster.consumer()) {
            consumer.assign(Cluster.partitions(topic));
            consumer.seekToBeginning(Cluster.partitions(topic));
            while (!stop) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Cluster.POLL)) {
                        (pattern.check(record) >= firstOfNew ? readOfNew : readOfOld).incrementAndGet();
                    }
                } catch (KafkaException expected) {
                    // Between the two topics there is none; what counts is that reading goes on.
                    System.err.println("running consumer: " + expected);
                }
            }
        }
    }

    /** The new topic holds what was acknowledged after its creation, each record where its acknowledgement said, in order. */
    private void check() {
        Map<Integer, long[]> read = new HashMap<>();
        for (List<ConsumerRecord<byte[], byte[]>> records : cluster.readAll(topic)) {
            int previous = -1;
            for (int offset = 0; offset < records.size(); offset++) {
                ConsumerRecord<byte[], byte[]> record = records.get(offset);
                int index = pattern.check(record);
                Failure.unless(record.offset() == offset, "partition " + record.partition() + ": offset " + record.offset() + ", want " + offset);
                Failure.unless(index > previous, "partition " + record.partition() + ": record " + index + " after " + previous);
                previous = index;
                read.put(index, new long[] {record.partition(), record.offset()});
            }
        }
        acknowledged.forEach((index, where) -> {
            if (index >= firstOfNew) {
                Failure.unless(java.util.Arrays.equals(read.get(index), where), "record " + index + " acknowledged at " + where[0] + ":" + where[1] + " is not there");
            }
        });
    }
}
