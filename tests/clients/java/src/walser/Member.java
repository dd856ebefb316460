package walser;

import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.WakeupException;

/**
 * One member of a group: {@code Member BOOTSTRAP TOPIC GROUP [KEY=VALUE...]}. Prints {@code r PARTITION OFFSET} for each record, then
 * commits; a signal to end makes it leave.
 */
public final class Member {
    private Member() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "100");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        for (int position = 3; position < arguments.length; position++) {
            String[] pair = arguments[position].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            consumer.subscribe(Collections.singletonList(arguments[1]));
            while (true) {
                read(consumer);
            }
        } catch (WakeupException error) {
            // The end was asked for.
        } finally {
            consumer.close(Duration.ofSeconds(60));
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
        if (records.isEmpty()) {
            return;
        }
        StringBuilder text = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            text.append("r ").append(record.partition()).append(' ').append(record.offset()).append('\n');
        }
        System.out.print(text);
        System.out.flush();
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RetriableException error) {
            // The group has moved on, or the broker is away: somebody reads these again.
            System.err.println("not committed: " + error);
        }
    }
}
