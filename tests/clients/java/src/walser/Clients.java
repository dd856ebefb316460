package walser;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs the cases of the Java client against a broker: {@code Clients BOOTSTRAP PREFIX [CASE...]}.
 *
 * <p>Prints {@code ok CASE} or {@code FAIL CASE: why} for each and exits with 1 when one failed.
 * Lines {@code verify TOPIC COUNT BASE} and {@code verify-sizes TOPIC BYTES,BYTES...} on standard input, with {@code -} in
 * place of the cases, have it check what another program wrote.
 */
public final class Clients {
    interface Case {
        void run() throws Exception;
    }

    private Clients() {
    }

    public static void main(String[] arguments) throws Exception {
        int failures = 0;
        try (Cluster cluster = new Cluster(arguments[0])) {
            List<String> wanted = Arrays.asList(arguments).subList(2, arguments.length);
            Map<String, Case> cases = wanted.contains("-") ? fromInput(cluster, arguments[1]) : all(cluster, arguments[1]);
            if (!wanted.isEmpty() && !wanted.contains("-")) {
                cases.keySet().retainAll(wanted);
            }
            for (Map.Entry<String, Case> one : cases.entrySet()) {
                try {
                    one.getValue().run();
                    System.out.println("ok " + one.getKey());
                } catch (Throwable error) {
                    failures++;
                    System.out.println("FAIL " + one.getKey() + ": " + error);
                    error.printStackTrace();
                }
            }
        }
        System.exit(failures == 0 ? 0 : 1);
    }

    private static Map<String, Case> fromInput(Cluster cluster, String prefix) throws IOException {
        Map<String, Case> cases = new LinkedHashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String name = words[1].startsWith(prefix + "-") ? words[1].substring(prefix.length() + 1) : words[1];
            if (words[0].equals("verify-sizes")) {
                cases.put(name, () -> new Sizes(cluster, prefix).verify(words[1], words[2].split(",")));
            } else {
                cases.put(name, () -> new WriteAndRead(cluster, prefix).verify(words[1], words[2], Long.parseLong(words[3])));
            }
        }
        return cases;
    }

    private static Map<String, Case> all(Cluster cluster, String prefix) {
        WriteAndRead run = new WriteAndRead(cluster, prefix);
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("default", () -> run.writeAndRead("default", 100_000, new LinkedHashMap<>()));
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            cases.put("codec-" + codec, () -> run.writeAndRead("codec-" + codec, 5_000, Map.of("compression.type", codec, "linger.ms", 5)));
        }
        for (String acks : new String[] {"0", "1", "all"}) {
            cases.put("acks-" + acks, () -> run.writeAndRead("acks-" + acks, 5_000, Map.of("acks", acks, "enable.idempotence", false)));
        }
        cases.put("idempotent", () -> run.writeAndRead("idempotent", 20_000, Map.of("enable.idempotence", true, "acks", "all")));
        cases.put("sizes", new Sizes(cluster, prefix)::run);
        cases.put("offsets", new Offsets(cluster, prefix)::run);
        cases.put("recreate", new Recreate(cluster, prefix)::run);
        return cases;
    }
}
