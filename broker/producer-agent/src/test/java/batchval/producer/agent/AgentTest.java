package batchval.producer.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.lang.instrument.Instrumentation;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class AgentTest {
    @Test
    void theAgentGivenTwice() {
        List<String> calls = new ArrayList<>();
        Instrumentation instrumentation = (Instrumentation) Proxy.newProxyInstance(
            AgentTest.class.getClassLoader(), new Class<?>[] {Instrumentation.class},
            (proxy, method, arguments) -> {
                calls.add(method.getName());
                return method.getReturnType() == boolean.class ? true : null;
            });
        try {
            Agent.premain("carrier=tag", instrumentation);
            assertEquals(Carrier.TAG, Hooks.options.carrier());
            Agent.premain("carrier=tag", instrumentation);
            assertEquals(Carrier.TAG, Hooks.options.carrier());
            assertEquals(List.of("addTransformer"), calls);
            Agent.premain("carrier=payload", instrumentation);
            assertSame(Hooks.OFF, Hooks.options);
            assertEquals(List.of("addTransformer", "removeTransformer"), calls);
            assertEquals("inactive: given twice with different options: give it once",
                new Counters().getStatus());
        } finally {
            Hooks.options = Hooks.OFF;
        }
    }
}
