package batchval.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import batchval.claims.Policy;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.NullSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

class OptionsTest {
    private static Policy policy(Options options, String topic, String principal, String listener) {
        return options.rule(topic, principal, listener).policy();
    }

    @ParameterizedTest
    @NullSource
    @ValueSource(strings = {"", "policy=ignore", "rule.1=ignore,topic=a"})
    void ignoresAll(String argument) {
        assertTrue(Options.parse(argument).ignoresAll());
    }

    @Test
    void theFirstRuleThatMatchesCounts() {
        Options options = Options.parse("policy=verify;rule.10=audit:0.5,topic=a*;"
            + "rule.2=trust,topic=ab,principal=User:CN=x,O=y,listener=IN");
        assertFalse(options.ignoresAll());
        assertEquals("trust", policy(options, "ab", "User:CN=x,O=y", "IN").toString());
        assertEquals("audit:0.5", policy(options, "ab", "User:CN=x,O=y", "OUT").toString());
        assertEquals("audit:0.5", policy(options, "ab", "User:CN=x", "IN").toString());
        assertEquals("verify", policy(options, "b", "User:CN=x,O=y", "IN").toString());
        assertTrue(options.rule("ab", "User:CN=x,O=y", "IN").namesListener());
        assertFalse(options.rule("ab", "User:z", "IN").namesListener());
        assertEquals("policy verify; rule.2 trust topic ab principal User:CN=x,O=y listener IN;"
            + " rule.10 audit:0.5 topic a*", options.toString());
    }

    @Test
    void headersAreBelievedForAMeasurementOnly() {
        Options options = Options.parse("measure.header=bench-*");
        assertFalse(options.ignoresAll());
        assertTrue(options.measuresHeader("bench-header"));
        assertFalse(options.measuresHeader("orders"));
        assertFalse(Options.parse("policy=trust").measuresHeader("bench-header"));
        assertEquals("policy ignore; MEASUREMENT: headers of topic bench-* are believed without"
            + " claims", options.toString());
    }

    @Test
    void aFileHasTheSameOptions(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("claims=of.properties");
        Files.writeString(file, "# comment\npolicy = audit:0.01\n"
            + "rule.1 = trust, topic=x\ndemotion.ms=5\nmax.decompressed.bytes=7\n");
        String message = assertThrows(IllegalArgumentException.class,
            () -> Options.parse(file.toString())).getMessage();
        assertTrue(message.contains("rule.1"), message);
        Files.writeString(file, "# comment\npolicy = audit:0.01\nrule.1 = trust,topic=x\n"
            + "demotion.ms=5\nmax.decompressed.bytes=7\n");
        Options options = Options.parse(file.toString());
        assertEquals("policy audit:0.01; rule.1 trust topic x", options.toString());
        assertEquals(5, options.demotionMs());
        assertEquals(7, options.maxDecompressedBytes());
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "policy=no | 'no'",
        "policy=audit:2 | 'audit:2'",
        "polici=trust | 'polici'",
        "policy=trust;policy=verify | 'policy' is there twice",
        "policy=trust;verify | 'verify'",
        "rule.x=trust | 'x'",
        "rule.1=trust;rule.01=verify | rule 1 is there twice",
        "rule.1=trust,topics=a | 'trust,topics=a'",
        "rule.1=trust,topic= | topic= is empty",
        "rule.1=trust,topic=a,topic=b | topic=b is a second one",
        "secret=00 | 32 to 128 hexadecimal digits",
        "secret=0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g | 32 to 128 hexadecimal digits",
        "demotion.ms=-1 | '-1'",
        "first.checked=many | 'many'",
        "max.decompressed.bytes=0 | '0'",
        "/no/such/file | '/no/such/file'",
    })
    void aWrongOptionIsNamed(String argument, String part) {
        String message = assertThrows(IllegalArgumentException.class,
            () -> Options.parse(argument)).getMessage();
        assertTrue(message.contains(part), message);
    }

    @ParameterizedTest
    @CsvSource({"a,a,true", "a,b,false", "*,'',true", "*,abc,true", "a*,abc,true", "*c,abc,true",
        "a*c,abdc,true", "a*d,abdc,false", "a?c,abc,true", "a?c,ac,false", "*ab,aab,true",
        "*a*b*,xaybz,true", "'',a,false", "'','',true", "a.c,abc,false", "??,a,false"})
    void globs(String glob, String text, boolean matches) {
        assertEquals(matches, Glob.matches(glob, text));
    }
}
