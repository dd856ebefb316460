package walser;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Random values of a schema of Kafka's. */
final class RandomStruct {
    private static final String[] LETTERS = {"a", "Q", "7", ".", "-", " ", "ä", "€", "🐘"};
    private final Random random;

    RandomStruct(Random random) {
        this.random = random;
    }

    ByteBuffer bytes(Schema schema) {
        Object value = struct(schema);
        ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(value));
        schema.write(buffer, value);
        buffer.flip();
        return buffer;
    }

    private Struct struct(Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            struct.set(field, value(field.def.type));
        }
        return struct;
    }

    private Object value(Type type) {
        if (type instanceof TaggedFields tagged) {
            return tags(tagged);
        }
        if (type.isNullable() && random.nextInt(4) == 0) {
            return null;
        }
        if (type instanceof Schema schema) {
            return struct(schema);
        }
        if (type.isArray()) {
            Type element = type.arrayElementType().orElseThrow();
            Object[] elements = new Object[random.nextInt(4)];
            for (int index = 0; index < elements.length; index++) {
                elements[index] = value(element);
            }
            return elements;
        }
        return plain(type);
    }

    private Object plain(Type type) {
        String name = type.toString();
        return switch (name) {
            case "BOOLEAN" -> random.nextBoolean();
            case "INT8" -> (byte) number();
            case "INT16" -> (short) number();
            case "UINT16" -> (int) number() & 0xffff;
            case "INT32" -> (int) number();
            case "UINT32" -> number() & 0xffffffffL;
            case "INT64" -> number();
            case "UUID" -> new Uuid(number(), number());
            case "FLOAT64" -> random.nextInt(3) == 0 ? 0.0 : random.nextGaussian();
            case "STRING", "COMPACT_STRING", "NULLABLE_STRING", "COMPACT_NULLABLE_STRING" -> text();
            case "BYTES", "COMPACT_BYTES", "NULLABLE_BYTES", "COMPACT_NULLABLE_BYTES" -> blob();
            case "RECORDS", "COMPACT_RECORDS", "NULLABLE_RECORDS", "COMPACT_NULLABLE_RECORDS" ->
                MemoryRecords.readableRecords(blob());
            default -> throw new IllegalStateException("type " + name + " " + type.getClass());
        };
    }

    private NavigableMap<Integer, Object> tags(TaggedFields type) {
        NavigableMap<Integer, Object> values = new TreeMap<>();
        for (Map.Entry<Integer, Field> entry : type.fields().entrySet()) {
            if (random.nextInt(3) != 0) {
                values.put(entry.getKey(), value(entry.getValue().type));
            }
        }
        return values;
    }

    private long number() {
        return switch (random.nextInt(4)) {
            case 0 -> random.nextInt(300);
            case 1 -> -1;
            default -> random.nextLong();
        };
    }

    private String text() {
        int length = switch (random.nextInt(12)) {
            case 0, 1, 2 -> 0;
            case 3 -> 120 + random.nextInt(20);
            default -> 1 + random.nextInt(10);
        };
        StringBuilder text = new StringBuilder();
        for (int index = 0; index < length; index++) {
            text.append(LETTERS[random.nextInt(LETTERS.length)]);
        }
        return text.toString();
    }

    private ByteBuffer blob() {
        return ByteBuffer.wrap(text().getBytes(StandardCharsets.UTF_8));
    }
}
