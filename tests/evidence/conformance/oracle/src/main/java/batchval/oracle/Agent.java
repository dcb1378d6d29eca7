package batchval.oracle;

import org.apache.kafka.common.record.internal.MemoryRecords;

import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;

import javax.management.Attribute;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * The agent of broker/, in a JVM that runs with it: what a Produce request brings with the records
 * comes from cfg.sender and cfg.tag. Cases without a sender are asked as without the agent.
 */
final class Agent {
    private static final MBeanServer SERVER = ManagementFactory.getPlatformMBeanServer();

    /** Put sender and tag on the records, as the broker does with those of a request. */
    static void carry(MemoryRecords records, Settings s) {
        if (s.sender() == null)
            return;
        try {
            Method carry = Class.forName("batchval.broker.hook.Hooks").getMethod("carry",
                Object.class, byte[].class, String.class, boolean.class, String.class);
            carry.invoke(null, records, s.tag(), s.sender(), false, "ORACLE");
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("cfg.sender needs the agent of broker/", e);
        }
    }

    /** Return the agent's counters; none where no case needs them. */
    static Map<String, Long> counters(Settings s) {
        Map<String, Long> counters = new TreeMap<>();
        if (s.sender() == null)
            return counters;
        try {
            ObjectName name = new ObjectName("batchval:type=claims");
            String[] names = java.util.Arrays.stream(SERVER.getMBeanInfo(name).getAttributes())
                .map(attribute -> attribute.getName()).toArray(String[]::new);
            for (Attribute attribute : SERVER.getAttributes(name, names).asList())
                if (attribute.getValue() instanceof Long count)
                    counters.put(attribute.getName(), count);
        } catch (JMException e) {
            throw new IllegalStateException(e);
        }
        return counters;
    }

    private Agent() { }
}
