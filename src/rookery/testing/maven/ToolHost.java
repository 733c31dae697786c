import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Base64;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one Java, since to start a Java takes
 * longer than most of them do.
 *
 * A line of input is a call: the main class, what the tool reads, and its arguments. A line of
 * output is the answer: the exit status, what the tool said, and its errors. Texts are in base64,
 * behind a sign that keeps the empty ones apart.
 */
public final class ToolHost {
    private static final Queue<Runnable> hooks = new ConcurrentLinkedQueue<>();
    private static volatile CompletableFuture<Integer> status;

    private ToolHost() {}

    /** Answers calls until the input ends, and then ends whatever is still running. */
    public static void main(final String[] args) throws IOException {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        final PrintStream answers = System.out;
        final BufferedReader calls = new BufferedReader(new InputStreamReader(System.in));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            final String[] call = Stream.of(line.split(" ")).map(ToolHost::decoded).toArray(String[]::new);
            start(() -> answers.println(answer(call)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(final String[] call) {
        final ByteArrayOutputStream said = new ByteArrayOutputStream();
        final ByteArrayOutputStream errors = new ByteArrayOutputStream();
        status = new CompletableFuture<>();
        System.setIn(new ByteArrayInputStream(call[1].getBytes(UTF_8)));
        System.setOut(new PrintStream(said, true, UTF_8));
        System.setErr(new PrintStream(errors, true, UTF_8));
        start(() -> run(call[0], Stream.of(call).skip(2).toArray(String[]::new)));
        final int code = status.join();
        for (Runnable hook = hooks.poll(); hook != null; hook = hooks.poll()) {
            hook.run();
        }
        return code + " " + encoded(said) + " " + encoded(errors);
    }

    private static void run(final String name, final String[] args) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            status.complete(0);
        } catch (final ReflectiveOperationException error) {
            error.printStackTrace();
            status.complete(1);
        }
    }

    /** Leaves the tool's thread where it is, for nothing of it may run after its end. */
    private static void end(final int code) {
        status.complete(code);
        new CompletableFuture<Void>().join();
    }

    private static void start(final Runnable work) {
        final Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private static String decoded(final String text) {
        return new String(Base64.getDecoder().decode(text.substring(1)), UTF_8);
    }

    private static String encoded(final ByteArrayOutputStream bytes) {
        return "=" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
