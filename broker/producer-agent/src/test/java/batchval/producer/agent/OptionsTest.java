package batchval.producer.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.NullSource;
import org.junit.jupiter.params.provider.ValueSource;

class OptionsTest {
    @ParameterizedTest
    @NullSource
    @ValueSource(strings = {"", " ", ";", "carrier=tag", "carrier=payload;carrier=tag",
        " carrier = tag ;"})
    void theTagIsTheDefault(String text) {
        assertEquals(Carrier.TAG, Options.parse(text).carrier());
    }

    @ParameterizedTest
    @CsvSource({"carrier=payload,PAYLOAD", "carrier=none,NONE"})
    void carriersHaveNames(String text, Carrier carrier) {
        assertEquals(carrier, Options.parse(text).carrier());
    }

    @ParameterizedTest
    @ValueSource(strings = {"carrier", "carrier=", "carrier=TAG", "carrier=tag,payload",
        "tag", "policy=trust"})
    void anythingElseIsRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Options.parse(text));
    }

    @Test
    void anErrorNamesTheValueAndWhatIsAllowed() {
        var wrong = assertThrows(IllegalArgumentException.class, () -> Options.parse("carrier=x"));
        assertEquals("invalid carrier 'x': expected tag, payload or none", wrong.getMessage());
    }
}
