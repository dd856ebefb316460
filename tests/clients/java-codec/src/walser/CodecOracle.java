package walser;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.Schema;

/**
 * Holds a codec against Kafka's message classes, for every version of every message: random values written here and read
 * there, random values written there and read here, values carried from one version to another, and defaults.
 */
public final class CodecOracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    private final Codec codec;
    private final int samples;
    private final Map<String, String> differences = new LinkedHashMap<>();
    /** Messages whose schema and reader disagree within Kafka itself; samples of ours still cover them. */
    private final Map<String, Integer> unreadables = new LinkedHashMap<>();
    private long checks;

    private CodecOracle(Codec codec, int samples) {
        this.codec = codec;
        this.samples = samples;
    }

    public static void main(String[] arguments) throws Exception {
        try (Codec codec = new Codec(arguments[0])) {
            CodecOracle oracle = new CodecOracle(codec, Integer.parseInt(arguments[1]));
            int known = 0;
            StringBuilder unknown = new StringBuilder();
            for (String line : codec.list().split("\n")) {
                String[] words = line.split(" ");
                Class<?> type = find(words[0]);
                if (type == null) {
                    unknown.append(' ').append(words[0]);
                    continue;
                }
                known++;
                oracle.checkMessage(words[0], type, Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            }
            oracle.differences.forEach((what, problem) -> System.out.println("DIFFERS " + what + ": " + problem));
            System.out.printf("%d messages, %d checks, %d differ; not Kafka's:%s%n",
                known, oracle.checks, oracle.differences.size(), unknown);
            System.out.println("Kafka cannot read what its own schema writes: " + oracle.unreadables);
            boolean expected = Set.of("ConsumerGroupMemberMetadataValue").containsAll(oracle.unreadables.keySet());
            System.exit(oracle.differences.isEmpty() && expected && known >= 240 ? 0 : 1);
        }
    }

    private static Class<?> find(String name) {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException absent) {
                    // The next place.
                }
            }
        }
        return null;
    }

    private void checkMessage(String name, Class<?> type, int first, int last) throws Exception {
        Message fresh = (Message) type.getConstructor().newInstance();
        if (fresh.lowestSupportedVersion() != first || fresh.highestSupportedVersion() != last) {
            differ(name, "versions", "Kafka has " + fresh.lowestSupportedVersion() + "-" + fresh.highestSupportedVersion());
        }
        Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
        for (int version = first; version <= last; version++) {
            compare(name, "default of " + version, write(fresh, version), codec.encodeDefault(name, version));
            for (int sample = 0; sample < samples; sample++) {
                checkTheirs(name, type, schemas, version, first, last, sample);
                checkOurs(name, type, version, sample);
            }
        }
    }

    /** Random values of theirs: what we make of their bytes, at the same version and carried to every other. */
    private void checkTheirs(String name, Class<?> type, Schema[] schemas, int version, int first, int last, int sample)
            throws Exception {
        Random random = new Random(name.hashCode() * 31L * 31L + version * 31L + sample);
        byte[] bytes = array(new RandomStruct(random).bytes(schemas[version]));
        Message value;
        try {
            value = read(type, version, bytes);
        } catch (RuntimeException unreadable) {
            // Kafka's schema of a nullable struct in a tagged field lacks the byte that its reader expects.
            unreadables.merge(name, 1, Integer::sum);
            return;
        }
        for (int other = first; other <= last; other++) {
            compare(name, version + " to " + other + " of " + HexFormat.of().formatHex(bytes),
                write(value, other), codec.translate(name, version, other, bytes));
        }
    }

    /** Random values of ours: Kafka reads them and writes the same bytes. */
    private void checkOurs(String name, Class<?> type, int version, int sample) throws Exception {
        Codec.Reply reply = codec.sample(name, version, sample * 7919L + version);
        compare(name, "sample of " + version, write(read(type, version, reply.bytes()), version), reply);
    }

    private static Message read(Class<?> type, int version, byte[] bytes) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        message.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), (short) version);
        return message;
    }

    /** Null when Kafka refuses to write the value at this version. */
    private static byte[] write(Message message, int version) {
        try {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            int size = message.size(cache, (short) version);
            ByteBuffer buffer = ByteBuffer.allocate(size);
            message.write(new ByteBufferAccessor(buffer), cache, (short) version);
            buffer.flip();
            return array(buffer);
        } catch (RuntimeException refused) {
            return null;
        }
    }

    private static byte[] array(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private void compare(String name, String what, byte[] kafka, Codec.Reply ours) {
        checks++;
        if (kafka == null && ours.bytes() != null) {
            differ(name, what, "Kafka refuses, we do not");
        } else if (kafka != null && ours.bytes() == null) {
            differ(name, what, "we refuse: " + ours.refusal());
        } else if (!Arrays.equals(kafka, ours.bytes())) {
            differ(name, what, HexFormat.of().formatHex(kafka) + " is ours " + HexFormat.of().formatHex(ours.bytes()));
        }
    }

    private void differ(String name, String what, String problem) {
        differences.putIfAbsent(name, what + ": " + problem);
    }
}
