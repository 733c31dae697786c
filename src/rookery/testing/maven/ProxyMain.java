import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Runs Kroxylicious with the configuration file that the only argument names. */
public final class ProxyMain {
    private ProxyMain() {}

    /** Serves clients until the process is ended. */
    public static void main(final String[] args) throws Exception {
        final ConfigParser parser = new ConfigParser();
        final var configuration = parser.parseConfiguration(Files.readString(Path.of(args[0])));
        new KafkaProxy(parser, configuration, Features.defaultFeatures()).startup().block();
    }
}
