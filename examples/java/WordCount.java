// Counts words, as a jobq handler: the JDK only. The worker runs it as
// `java WordCount.java ${args.text}`, since the JDK has no reader of JSON: the args of a job
// can be parts of its command.
//
// What happens is told on file descriptor 3, one JSON object a line. The exit code decides:
// 0 completes the job, 65 fails it for good, anything else is a failed attempt.
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

class WordCount {
    static final int EX_DATAERR = 65;

    public static void main(String[] args) throws IOException {
        if (!args[0].matches("[a-z ]+")) {
            System.err.println("text must be words of the letters a to z");
            System.exit(EX_DATAERR);
        }
        try (PrintStream control = new PrintStream(new FileOutputStream("/dev/fd/" + System.getenv("JOBQ_CONTROL_FD")), true)) {
            String[] words = args[0].trim().split(" +");
            Map<String, Integer> counts = new TreeMap<>();
            for (int at = 0; at < words.length; at++) {
                counts.merge(words[at], 1, Integer::sum);
                control.println("{\"progress\": " + 100 * (at + 1) / words.length + ", \"message\": \"" + words[at] + "\"}");
            }
            control.println(counts.entrySet().stream().map(count -> "\"" + count.getKey() + "\": " + count.getValue())
                .collect(Collectors.joining(", ", "{\"result\": {", "}}")));
        }
    }
}
