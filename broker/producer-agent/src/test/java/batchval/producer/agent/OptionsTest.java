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
    @CsvSource({"schema.ids=true,true", "schema.ids=false,false", "carrier=payload,false",
        "carrier=payload; schema.ids = true,true", "schema.ids=true;schema.ids=false,false",
        "carrier=none;schema.ids=false,false"})
    void schemaIdsAreOffByDefault(String text, boolean schemaIds) {
        assertEquals(schemaIds, Options.parse(text).schemaIds());
    }

    @Test
    void optionsReadAsTheyAreWritten() {
        assertEquals("carrier=tag", Options.parse("").toString());
        assertEquals("carrier=payload, schema.ids=true",
            Options.parse("schema.ids=true;carrier=payload").toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"carrier", "carrier=", "carrier=TAG", "carrier=tag,payload",
        "tag", "policy=trust", "schema.ids", "schema.ids=", "schema.ids=yes", "schema.ids=TRUE",
        "schema_ids=true", "schema.ids=true;carrier=none"})
    void anythingElseIsRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Options.parse(text));
    }

    @Test
    void anErrorNamesTheValueAndWhatIsAllowed() {
        var wrong = assertThrows(IllegalArgumentException.class, () -> Options.parse("carrier=x"));
        assertEquals("invalid carrier 'x': expected tag, payload or none", wrong.getMessage());
        wrong = assertThrows(IllegalArgumentException.class,
            () -> Options.parse("schema.ids=1"));
        assertEquals("invalid schema.ids '1': expected true or false", wrong.getMessage());
        wrong = assertThrows(IllegalArgumentException.class,
            () -> Options.parse("carrier=none;schema.ids=true"));
        assertEquals("schema.ids=true needs carrier to be tag or payload, not 'none'",
            wrong.getMessage());
    }
}
