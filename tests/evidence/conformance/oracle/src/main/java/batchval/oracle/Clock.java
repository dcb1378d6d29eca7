package batchval.oracle;

import org.apache.kafka.common.utils.Time;

import java.lang.reflect.Proxy;

/** A clock that stands at the case's now. Time has other methods in other releases of Kafka. */
final class Clock {
    /** Milliseconds. */
    long now;
    /** This clock as Kafka's classes take it. */
    final Time time = (Time) Proxy.newProxyInstance(Clock.class.getClassLoader(),
        new Class<?>[]{Time.class}, (proxy, method, args) -> switch (method.getName()) {
            case "milliseconds", "hiResClockMs" -> now;
            case "nanoseconds" -> 0L;
            default -> method.invoke(Time.SYSTEM, args);
        });

    Clock(long now) {
        this.now = now;
    }
}
