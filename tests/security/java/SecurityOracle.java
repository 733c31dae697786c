import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.quota.QuotaUtils;

/** Answers questions with Kafka's and Java's own code: one question and one answer per line, in JSON. */
public class SecurityOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            ArrayNode answers = JSON.createArrayNode();
            switch (question.get("kind").asText()) {
                case "acl" -> acl(question, answers);
                case "names" -> names(question, answers);
                case "rules" -> rules(question, answers);
                case "hosts" -> hosts(question, answers);
                case "rate" -> rate(question, answers);
                case "bucket" -> bucket(question, answers);
                default -> throw new IllegalArgumentException(line);
            }
            System.out.write((JSON.writeValueAsString(answers) + "\n").getBytes(StandardCharsets.UTF_8));
        }
        System.out.flush();
    }

    private static void acl(JsonNode question, ArrayNode answers) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        Map<String, Object> config = new HashMap<>();
        config.put("super.users", question.get("super_users").asText());
        config.put("allow.everyone.if.no.acl.found", question.get("open").asText());
        config.put("node.id", "0");
        authorizer.configure(config);
        Metrics metrics = new Metrics();
        authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, Map.of()));
        for (JsonNode rule : question.get("rules")) {
            authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                ResourceType.fromCode((byte) rule.get(0).asInt()), rule.get(2).asText(),
                PatternType.fromCode((byte) rule.get(1).asInt()), rule.get(3).asText(), rule.get(4).asText(),
                AclOperation.fromCode((byte) rule.get(5).asInt()),
                AclPermissionType.fromCode((byte) rule.get(6).asInt())));
        }
        authorizer.completeInitialLoad();
        for (JsonNode ask : question.get("asks")) {
            var context = context(ask.get(0).asText(), ask.get(1).asText());
            var operation = AclOperation.fromCode((byte) ask.get(2).asInt());
            var type = ResourceType.fromCode((byte) ask.get(3).asInt());
            var resource = new ResourcePattern(type, ask.get(4).asText(), PatternType.LITERAL);
            var one = authorizer.authorize(context, List.of(new Action(operation, resource, 1, true, true))).get(0);
            var any = authorizer.authorizeByResourceType(context, operation, type);
            answers.add(one == AuthorizationResult.ALLOWED);
            answers.add(any == AuthorizationResult.ALLOWED);
        }
        metrics.close();
    }

    private static AuthorizableRequestContext context(String principal, String host) throws Exception {
        KafkaPrincipal parsed = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            @Override public String listenerName() { return "L"; }
            @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
            @Override public KafkaPrincipal principal() { return parsed; }
            @Override public InetAddress clientAddress() { return address; }
            @Override public int requestType() { return 0; }
            @Override public int requestVersion() { return 9; }
            @Override public String clientId() { return "c"; }
            @Override public int correlationId() { return 1; }
        };
    }

    private static void names(JsonNode question, ArrayNode answers) {
        for (JsonNode der : question.get("names")) {
            try {
                answers.add(new X500Principal(Base64.getDecoder().decode(der.asText())).getName());
            } catch (IllegalArgumentException error) {
                answers.addNull();
            }
        }
    }

    private static void hosts(JsonNode question, ArrayNode answers) throws Exception {
        for (JsonNode host : question.get("hosts")) {
            answers.add(InetAddress.getByName(host.asText()).getHostAddress());
        }
    }

    private static void rules(JsonNode question, ArrayNode answers) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(question.get("rules").asText());
        } catch (IllegalArgumentException error) {
            answers.add("invalid");
            return;
        }
        for (JsonNode name : question.get("names")) {
            try {
                answers.add(mapper.getName(name.asText()));
            } catch (SslPrincipalMapper.NoMatchingRule error) {
                answers.addNull();
            } catch (Exception error) {
                answers.add("error");
            }
        }
    }

    private static void rate(JsonNode question, ArrayNode answers) {
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = sensor(metrics, question, false);
            for (JsonNode event : question.get("events")) {
                long time = event.get(0).asLong();
                try {
                    sensor.record(event.get(1).asDouble(), time, true);
                    answers.add(0L);
                } catch (QuotaViolationException error) {
                    answers.add(QuotaUtils.throttleTime(error, time));
                }
            }
        }
    }

    private static void bucket(JsonNode question, ArrayNode answers) {
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = sensor(metrics, question, true);
            for (JsonNode event : question.get("events")) {
                long time = event.get(0).asLong();
                try {
                    if (question.get("strict").asBoolean()) {
                        sensor.checkQuotas(time);
                        sensor.record(event.get(1).asDouble(), time, false);
                    } else {
                        sensor.record(event.get(1).asDouble(), time, true);
                    }
                    answers.add(0L);
                } catch (QuotaViolationException error) {
                    // As in ControllerMutationQuotaManager.throttleTimeMs.
                    answers.add(Math.round(-error.value() / error.bound() * 1000));
                }
            }
        }
    }

    private static Sensor sensor(Metrics metrics, JsonNode question, boolean isBucket) {
        MetricConfig config = new MetricConfig()
            .timeWindow(1, TimeUnit.SECONDS)
            .samples(11)
            .quota(new Quota(question.get("limit").asDouble(), true));
        Sensor sensor = metrics.sensor("s");
        sensor.add(metrics.metricName("m", "g"), isBucket ? new TokenBucket() : new Rate(), config);
        return sensor;
    }
}
