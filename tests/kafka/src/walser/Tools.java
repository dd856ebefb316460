package walser;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs many command line tools in one JVM: {@code Tools COMMANDS FOLDER}. A line of the file COMMANDS is what to wait for, a
 * class and its arguments, with tabs between them; of line N, counted from 0, the file FOLDER/N gets the exit code and then
 * the output. {@code +WORD} repeats the command until the output has the word, {@code -WORD} until it no longer has it, for
 * a while: a broker may answer a change before all of it sees the change. {@code ?+WORD} does so where the command before
 * has succeeded.
 */
public final class Tools {
    private static final long SETTLE_NANOS = 60_000_000_000L;

    private Tools() {
    }

    private static final class Exited extends RuntimeException {
        private static final long serialVersionUID = 1;
        final int code;

        Exited(int code) {
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        Exit.setHaltProcedure((code, message) -> {
            throw new Exited(code);
        });
        PrintStream out = System.out;
        PrintStream err = System.err;
        List<String> commands = Files.readAllLines(Path.of(arguments[0]));
        int before = 0;
        for (int number = 0; number < commands.size(); number++) {
            String[] words = commands.get(number).split("\t");
            boolean onlyAfterSuccess = words[0].startsWith("?");
            String settled = onlyAfterSuccess ? words[0].substring(1) : words[0];
            boolean settles = !settled.isEmpty() && !(onlyAfterSuccess && before != 0);
            long deadline = System.nanoTime() + SETTLE_NANOS;
            int code;
            String output;
            boolean again;
            do {
                ByteArrayOutputStream captured = new ByteArrayOutputStream();
                try (PrintStream stream = new PrintStream(captured, true, StandardCharsets.UTF_8)) {
                    System.setOut(stream);
                    System.setErr(stream);
                    code = run(words[1], Arrays.copyOfRange(words, 2, words.length), stream);
                } finally {
                    System.setOut(out);
                    System.setErr(err);
                }
                output = captured.toString(StandardCharsets.UTF_8);
                again = settles && output.contains(settled.substring(1)) != settled.startsWith("+");
            } while (again && System.nanoTime() < deadline);
            before = code;
            Files.writeString(Path.of(arguments[1], Integer.toString(number)), code + "\n" + output);
        }
        System.exit(0);
    }

    private static int run(String tool, String[] arguments, PrintStream stream) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited) {
                return ((Exited) error.getCause()).code;
            }
            // What a JVM of its own would have printed.
            stream.println("Exception in thread \"main\" " + error.getCause());
            return 1;
        }
    }
}
