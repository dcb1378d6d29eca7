package batchval.broker.hook;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.junit.jupiter.api.Test;

class HooksTest {
    /** What a KafkaPrincipalBuilder of a broker's own may return. */
    private static final class OwnPrincipal extends KafkaPrincipal {
        OwnPrincipal(String name) {
            super(KafkaPrincipal.USER_TYPE, name);
        }
    }

    @Test
    void anonymousIsKnownByItsName() {
        assertTrue(Hooks.isAnonymous(KafkaPrincipal.ANONYMOUS));
        assertTrue(Hooks.isAnonymous(new OwnPrincipal("ANONYMOUS")));
        assertFalse(Hooks.isAnonymous(new OwnPrincipal("alice")));
    }
}
