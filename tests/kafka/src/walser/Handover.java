package walser;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.metadata.util.BatchFileReader;
import org.apache.kafka.metadata.util.BatchFileWriter;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Partition directories that change their broker.
 *
 * <pre>
 * Handover fill ADDRESS TOPICS            makes topics of every kind and fills them; TOPICS gets their names and ids. None is
 *                                         compacted by a broker that starts after it
 * Handover read ADDRESS TOPICS FILE       FILE gets the offsets and every record, one a line, by partition
 * Handover know CHECKPOINT TOPICS DIR_ID  adds the topics to what a formatted node starts from, all on broker 1
 * Handover append ADDRESS TOPICS          a record to each partition; says at which offsets
 * </pre>
 */
public final class Handover {
    /** Kafka's smallest, so that there are many. */
    private static final String SEGMENT_BYTES = "1048576";
    private static final int PARTITIONS = 2;
    private static final int RECORDS = 6_000;
    private static final int KEYS = 500;
    private static final int BROKER = 1;
    /** Above what a broker of these tests reaches by being started again. */
    private static final int LEADER_EPOCH = 1_000;
    private static final int NO_LEADER = -1;
    /** Above the ids that producers of these tests have been given. */
    private static final long NEXT_PRODUCER_ID = 1_000_000;
    private static final Map<String, Map<String, String>> KINDS = kinds();

    private Handover() {
    }

    private static Map<String, Map<String, String>> kinds() {
        Map<String, Map<String, String>> kinds = new TreeMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            kinds.put("codec-" + codec, Map.of("compression.type", codec.equals("none") ? "uncompressed" : codec));
        }
        kinds.put("append-time", Map.of("message.timestamp.type", "LogAppendTime"));
        kinds.put("compacted", Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01"));
        kinds.put("records-deleted", Map.of());
        kinds.put("empty", Map.of());
        return kinds;
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "fill" -> fill(arguments[1], Path.of(arguments[2]));
            case "read" -> read(arguments[1], Path.of(arguments[2]), Path.of(arguments[3]));
            case "know" -> know(Path.of(arguments[1]), Path.of(arguments[2]), Uuid.fromString(arguments[3]));
            case "append" -> append(arguments[1], Path.of(arguments[2]));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    private static void fill(String address, Path topics) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            List<NewTopic> wanted = new ArrayList<>();
            for (Map.Entry<String, Map<String, String>> kind : KINDS.entrySet()) {
                Map<String, String> configs = new HashMap<>(kind.getValue());
                configs.put("segment.bytes", SEGMENT_BYTES);
                wanted.add(new NewTopic(kind.getKey(), PARTITIONS, (short) 1).configs(configs));
            }
            admin.createTopics(wanted).all().get();
            // The second producer's records carry other ids, epochs and sequences than the first one's.
            for (int life = 0; life < 2; life++) {
                produce(address, life);
            }
            Map<TopicPartition, RecordsToDelete> deleted = new HashMap<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                deleted.put(new TopicPartition("records-deleted", partition), RecordsToDelete.beforeOffset(1_234 + partition));
            }
            admin.deleteRecords(deleted).all().get();
            ConfigResource compacted = new ConfigResource(ConfigResource.Type.TOPIC, "compacted");
            AlterConfigOp enough = new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(compacted, List.of(enough))).all().get();
            List<String> lines = new ArrayList<>();
            for (TopicDescription topic : admin.describeTopics(KINDS.keySet()).allTopicNames().get().values()) {
                lines.add(topic.name() + " " + topic.topicId());
            }
            Collections.sort(lines);
            Files.write(topics, lines);
        }
    }

    private static void produce(String address, int life) throws Exception {
        Random random = new Random(life);
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "acks", "all", "enable.idempotence", true, "linger.ms", 5,
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (String topic : KINDS.keySet()) {
                for (int number = 0; !topic.equals("empty") && number < RECORDS; number++) {
                    byte[] key = ("key-" + random.nextInt(KEYS)).getBytes(StandardCharsets.UTF_8);
                    boolean isTombstone = topic.equals("compacted") && random.nextInt(10) == 0;
                    byte[] value = isTombstone ? null : new byte[random.nextInt(2_000)];
                    if (value != null) {
                        random.nextBytes(value);
                        // Half of it compresses.
                        Arrays.fill(value, value.length / 2, value.length, (byte) 'x');
                    }
                    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, number % PARTITIONS, null, key, value);
                    record.headers().add("number", Integer.toString(number).getBytes(StandardCharsets.UTF_8));
                    producer.send(record, (metadata, problem) -> {
                        if (problem != null) {
                            throw new IllegalStateException(problem);
                        }
                    });
                }
            }
            producer.flush();
        }
    }

    private static List<TopicPartition> partitions(Path topics) throws IOException {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String line : Files.readAllLines(topics)) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                partitions.add(new TopicPartition(line.split(" ")[0], partition));
            }
        }
        return partitions;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String address) {
        return new KafkaConsumer<>(Map.of("bootstrap.servers", address, "enable.auto.commit", false, "auto.offset.reset", "none",
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class));
    }

    private static void read(String address, Path topics, Path file) throws Exception {
        List<String> lines = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(address)) {
            for (TopicPartition partition : partitions(topics)) {
                long start = consumer.beginningOffsets(List.of(partition)).get(partition);
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                lines.add(partition + " from " + start + " to " + end);
                consumer.assign(List.of(partition));
                consumer.seek(partition, start);
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                        lines.add(line(record));
                    }
                }
            }
        }
        Files.write(file, lines);
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder();
        line.append(record.topic()).append('-').append(record.partition()).append(" @").append(record.offset());
        line.append(' ').append(record.timestampType()).append(' ').append(record.timestamp());
        line.append(' ').append(record.leaderEpoch()).append(' ').append(text(record.key())).append(' ').append(text(record.value()));
        record.headers().forEach(header -> line.append(' ').append(header.key()).append('=').append(text(header.value())));
        return line.toString();
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : Base64.getEncoder().encodeToString(bytes);
    }

    private static void know(Path checkpoint, Path topics, Uuid directory) throws Exception {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        try (BatchFileReader reader = new BatchFileReader.Builder().setPath(checkpoint.toString()).build()) {
            while (reader.hasNext()) {
                BatchFileReader.BatchAndType batch = reader.next();
                if (!batch.isControl()) {
                    records.addAll(batch.batch().records());
                }
            }
        }
        records.add(new ApiMessageAndVersion(new ProducerIdsRecord().setBrokerId(BROKER).setNextProducerId(NEXT_PRODUCER_ID), (short) 0));
        for (String line : Files.readAllLines(topics)) {
            String name = line.split(" ")[0];
            Uuid id = Uuid.fromString(line.split(" ")[1]);
            records.add(new ApiMessageAndVersion(new TopicRecord().setName(name).setTopicId(id), (short) 0));
            Map<String, String> configs = new TreeMap<>(KINDS.get(name));
            configs.put("segment.bytes", SEGMENT_BYTES);
            // What is compared is what was handed over, not what a cleaner makes of it.
            configs.put("cleanup.policy", "delete");
            configs.forEach((key, value) -> records.add(new ApiMessageAndVersion(
                new ConfigRecord().setResourceType((byte) 2).setResourceName(name).setName(key).setValue(value), (short) 0)));
            for (int partition = 0; partition < PARTITIONS; partition++) {
                records.add(new ApiMessageAndVersion(new PartitionRecord().setTopicId(id).setPartitionId(partition)
                    .setReplicas(List.of(BROKER)).setIsr(List.of(BROKER)).setLeader(NO_LEADER).setLeaderEpoch(LEADER_EPOCH)
                    .setDirectories(List.of(directory)), (short) 1));
            }
        }
        Path written = checkpoint.resolveSibling("written");
        try (BatchFileWriter writer = BatchFileWriter.open(written)) {
            for (ApiMessageAndVersion record : records) {
                writer.append(record);
            }
        }
        Files.move(written, checkpoint, StandardCopyOption.REPLACE_EXISTING);
    }

    private static void append(String address, Path topics) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "acks", "all", "enable.idempotence", true,
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (TopicPartition partition : partitions(topics)) {
                byte[] key = "appended".getBytes(StandardCharsets.UTF_8);
                long offset = producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), key, key)).get().offset();
                System.out.println(partition + " " + offset);
            }
        }
    }
}
