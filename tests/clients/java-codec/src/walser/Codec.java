package walser;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** The codec under test, in a process of its own. */
final class Codec implements AutoCloseable {
    private final Process process;
    private final DataOutputStream requests;
    private final DataInputStream replies;

    Codec(String program) throws IOException {
        process = new ProcessBuilder(program).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        requests = new DataOutputStream(new BufferedOutputStream(process.getOutputStream()));
        replies = new DataInputStream(new BufferedInputStream(process.getInputStream()));
    }

    /** Bytes, or the reason why there are none. */
    record Reply(byte[] bytes, String refusal) { }

    String list() throws IOException {
        return new String(ask('L', "", 0, 0, 0, new byte[0]).bytes(), StandardCharsets.UTF_8);
    }

    Reply translate(String name, int from, int to, byte[] bytes) throws IOException {
        return ask('T', name, from, to, 0, bytes);
    }

    Reply sample(String name, int version, long seed) throws IOException {
        return ask('S', name, version, version, seed, new byte[0]);
    }

    Reply encodeDefault(String name, int version) throws IOException {
        return ask('D', name, version, version, 0, new byte[0]);
    }

    private Reply ask(char operation, String name, int from, int to, long seed, byte[] bytes) throws IOException {
        byte[] encoded = name.getBytes(StandardCharsets.UTF_8);
        requests.writeByte(operation);
        requests.writeShort(encoded.length);
        requests.write(encoded);
        requests.writeShort(from);
        requests.writeShort(to);
        requests.writeLong(seed);
        requests.writeInt(bytes.length);
        requests.write(bytes);
        requests.flush();
        boolean refused = replies.readByte() != 0;
        byte[] reply = replies.readNBytes(replies.readInt());
        return refused ? new Reply(null, new String(reply, StandardCharsets.UTF_8)) : new Reply(reply, null);
    }

    @Override
    public void close() throws IOException {
        requests.close();
        process.destroy();
    }
}
