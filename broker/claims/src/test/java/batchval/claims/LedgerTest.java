package batchval.claims;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.Random;

class LedgerTest {
    private static Ledger ledger(int firstChecked, int mostSenders) {
        return new Ledger(new byte[16], firstChecked, 1000, mostSenders);
    }

    @Test
    void theSilentSenderIsForgottenAndADemotedOneIsNot() {
        Ledger ledger = ledger(0, 3);
        Ledger.Sender a = ledger.sender("a", 0);
        Ledger.Sender b = ledger.sender("b", 0);
        Ledger.Sender c = ledger.sender("c", 0);
        assertTrue(a.note(Ledger.Answer.LYING, 0));
        assertFalse(a.note(Ledger.Answer.LYING, 1));
        assertSame(b, ledger.sender("b", 1));
        ledger.sender("d", 1);
        assertEquals(3, ledger.size());
        assertSame(a, ledger.sender("a", 1));
        assertSame(b, ledger.sender("b", 1));
        assertNotSame(c, ledger.sender("c", 1));
    }

    @Test
    void aNewSenderIsNotRememberedWhereAllAreDemoted() {
        Ledger ledger = ledger(0, 1);
        Ledger.Sender a = ledger.sender("a", 0);
        a.note(Ledger.Answer.LYING, 0);
        assertNotSame(ledger.sender("b", 1), ledger.sender("b", 1));
        assertEquals(1, ledger.size());
        ledger.sender("b", 1000);
        assertNotSame(a, ledger.sender("a", 1000));
    }

    @Test
    void theSampleHasTheRate() {
        Ledger.Sender sender = ledger(0, 1).sender("a", 0);
        Policy policy = Policy.parse("audit:0.05");
        Random random = new Random(7);
        int sampled = 0;
        for (int i = 0; i < 100_000; i++)
            if (sender.decide(policy, random.nextInt(), 0) == Ledger.Decision.VERIFY)
                sampled++;
        assertEquals(5000, sampled, 350);  // five standard deviations
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "Trust", "audit", "audit:", "audit:0", "audit:1.1", "audit:-1",
        "audit:NaN", "audit:x", "trust ", "trust:1"})
    void aWrongPolicyIsRefused(String text) {
        IllegalArgumentException e =
            assertThrows(IllegalArgumentException.class, () -> Policy.parse(text));
        assertTrue(e.getMessage().contains("'" + text + "'"), e.getMessage());
    }

    @Test
    void aWrongLedgerIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> new Ledger(new byte[15], 0, 0, 1));
        assertThrows(IllegalArgumentException.class, () -> new Ledger(new byte[65], 0, 0, 1));
        assertThrows(IllegalArgumentException.class, () -> new Ledger(null, -1, 0, 1));
        assertThrows(IllegalArgumentException.class, () -> new Ledger(null, 0, -1, 1));
        assertThrows(IllegalArgumentException.class, () -> new Ledger(null, 0, 0, 0));
    }
}
