package batchval.producer.agent;

import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import javax.management.JMException;
import javax.management.ObjectName;

/** The counters of the agent, in JMX as {@code batchval:type=producer-claims}. */
public final class Counters implements CountersMBean {
    static final String NAME = "batchval:type=producer-claims";

    private static final LongAdder TAG = new LongAdder();
    private static final LongAdder PAYLOAD = new LongAdder();
    private static final LongAdder SCHEMA_IDS = new LongAdder();
    private static final LongAdder NONE = new LongAdder();
    private static final LongAdder ERRORS = new LongAdder();
    private static final AtomicBoolean LOGGED = new AtomicBoolean();
    private static final AtomicBoolean REGISTERED = new AtomicBoolean();

    private static volatile String status = "inactive: no producer was started";

    static void batch(Building building) {
        (building.block == null ? NONE : building.isInPayload() ? PAYLOAD : TAG).increment();
        if (building.hasSchemaIds())
            SCHEMA_IDS.increment();
    }

    /** Count a failure of the agent's own code; the first one is logged. */
    static void failed(Throwable failure) {
        ERRORS.increment();
        if (LOGGED.compareAndSet(false, true))
            Agent.log("an error, the batch has no claims; later ones are counted only: " + failure);
    }

    /** Set the status, and show the counters in JMX from now on. */
    static void status(String text) {
        status = text;
        if (!REGISTERED.compareAndSet(false, true))
            return;
        try {
            ManagementFactory.getPlatformMBeanServer()
                .registerMBean(new Counters(), new ObjectName(NAME));
        } catch (JMException | RuntimeException refused) {
            Agent.log("no counters in JMX: " + refused);
        }
    }

    @Override
    public long getTag() {
        return TAG.sum();
    }

    @Override
    public long getPayload() {
        return PAYLOAD.sum();
    }

    @Override
    public long getSchemaIds() {
        return SCHEMA_IDS.sum();
    }

    @Override
    public long getNone() {
        return NONE.sum();
    }

    @Override
    public long getErrors() {
        return ERRORS.sum();
    }

    @Override
    public String getStatus() {
        return status;
    }
}
