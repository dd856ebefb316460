package walser;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The broker under test, and the clients of it: everything that is set up the same way in every case. */
final class Cluster implements AutoCloseable {
    static final int PARTITIONS = 6;
    static final Duration POLL = Duration.ofMillis(200);
    private static final long DEADLINE_SECONDS = 300;
    /** A machine that is slow must not have a client send anything twice, or give it up. */
    private static final int REQUEST_MS = 120_000;
    private static final int DELIVERY_MS = 300_000;

    /** {@code values} until 3.0, {@code topicNameValues} since. */
    private static final Method TOPICS_BY_NAME = Arrays.stream(DescribeTopicsResult.class.getMethods())
        .filter(method -> method.getName().equals("topicNameValues") || method.getName().equals("values")).findFirst().orElseThrow();

    final String bootstrap;
    final AdminClient admin;

    Cluster(String bootstrap) {
        this.bootstrap = bootstrap;
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("request.timeout.ms", REQUEST_MS);
        properties.put("default.api.timeout.ms", DELIVERY_MS);
        this.admin = AdminClient.create(properties);
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("request.timeout.ms", REQUEST_MS);
        all.put("delivery.timeout.ms", DELIVERY_MS);
        all.put("max.block.ms", DELIVERY_MS);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        all.put("request.timeout.ms", REQUEST_MS);
        all.put("default.api.timeout.ms", DELIVERY_MS);
        all.put("enable.auto.commit", false);
        all.put("auto.offset.reset", "earliest");
        all.put("fetch.max.wait.ms", 100);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(String topic) {
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            all.add(new TopicPartition(topic, partition));
        }
        return all;
    }

    void create(String topic) throws Exception {
        admin.createTopics(Collections.singleton(new NewTopic(topic, PARTITIONS, (short) 1))).all().get(DEADLINE_SECONDS, TimeUnit.SECONDS);
        waitFor("topic " + topic + " has leaders", () -> {
            TopicDescription description = describe(topic);
            return description != null && description.partitions().size() == PARTITIONS
                && description.partitions().stream().allMatch(partition -> partition.leader() != null);
        });
        // A broker may name a leader before that one is ready. Producers without idempotence reorder what they then retry.
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.endOffsets(partitions(topic));
        }
    }

    void delete(String topic) throws Exception {
        admin.deleteTopics(Collections.singleton(topic)).all().get(DEADLINE_SECONDS, TimeUnit.SECONDS);
        waitFor("topic " + topic + " is gone", () -> describe(topic) == null);
    }

    /** {@code null} when there is no such topic. */
    @SuppressWarnings("unchecked")
    TopicDescription describe(String topic) {
        try {
            Map<String, KafkaFuture<TopicDescription>> futures = (Map<String, KafkaFuture<TopicDescription>>) TOPICS_BY_NAME
                .invoke(admin.describeTopics(Collections.singleton(topic)));
            return futures.get(topic).get(DEADLINE_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return null;
            }
            throw new IllegalStateException(error.getCause());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void waitFor(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
        while (!condition.getAsBoolean()) {
            Failure.unless(System.nanoTime() < deadline, "gave up waiting: " + what);
            Thread.sleep(20);
        }
    }

    /** Reads every partition from its beginning to its end as it was at the call; per partition in the order received. */
    List<List<ConsumerRecord<byte[], byte[]>>> readAll(String topic) {
        List<List<ConsumerRecord<byte[], byte[]>>> all = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> partitions = partitions(topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long expected = 0;
            for (TopicPartition partition : partitions) {
                all.add(new ArrayList<>());
                expected += ends.get(partition);
            }
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
            long received = 0;
            while (received < expected) {
                Failure.unless(System.nanoTime() < deadline, "read " + received + " of " + expected + " records, then nothing more");
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    all.get(record.partition()).add(record);
                    received++;
                }
            }
        }
        return all;
    }

    @Override
    public void close() {
        admin.close();
    }
}
