// What franz-go sees, a line each. A line holds no address, no time and no topic's full name, so
// that a run through the gate and a direct one can be compared.
//
// main BOOTSTRAP PREFIX PORT,PORT...
// main digest BOOTSTRAP TOPIC=COUNT...   (digest.go)
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	bootstrap, prefix string
	ports             []string
	digits            = regexp.MustCompile(`[0-9]{10,}`)
	ctx               context.Context
)

func say(what string, result any) {
	text := strings.ReplaceAll(fmt.Sprint(result), prefix, "*")
	fmt.Println(what + ": " + strings.ReplaceAll(digits.ReplaceAllString(text, "…"), "\n", " "))
}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.FetchMaxWait(100 * time.Millisecond), kgo.ProducerBatchMaxBytes(4 << 20),
	}, options...)...)
	must(err)
	return c
}

func topics() {
	c := client()
	defer c.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 20000
	add := func(name string, config ...string) {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = prefix+name, 1, 1
		for i := 0; i < len(config); i += 2 {
			entry := kmsg.NewCreateTopicsRequestTopicConfig()
			entry.Name, entry.Value = config[i], kmsg.StringPtr(config[i+1])
			topic.Configs = append(topic.Configs, entry)
		}
		request.Topics = append(request.Topics, topic)
	}
	add("codecs")
	add("tx")
	add("small", "max.message.bytes", "1000")
	add("compact", "cleanup.policy", "compact")
	add("fresh", "message.timestamp.before.max.ms", "3600000", "message.timestamp.after.max.ms", "3600000")
	answer, err := request.RequestWith(ctx, c)
	must(err)
	for _, topic := range answer.Topics {
		say("made "+strings.TrimPrefix(topic.Topic, prefix), topic.ErrorCode)
	}
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c)
	must(err)
	for _, broker := range metadata.Brokers {
		known := false
		for _, port := range ports {
			known = known || port == fmt.Sprint(broker.Port)
		}
		say("node", known)
	}
}

func read(topic string, count int, wait time.Duration, options ...kgo.Opt) []*kgo.Record {
	at := kgo.NewOffset().AtStart()
	c := client(append([]kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{prefix + topic: {0: at}})}, options...)...)
	defer c.Close()
	return poll(c, count, wait)
}

func poll(c *kgo.Client, count int, wait time.Duration) []*kgo.Record {
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count && limit.Err() == nil {
		c.PollFetches(limit).EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	return records
}

func described(records []*kgo.Record) string {
	hash := fnv.New64a()
	for _, r := range records {
		fmt.Fprint(hash, r.Offset, r.Key, r.Value, r.Headers)
	}
	return fmt.Sprintf("%d records, hash %x", len(records), hash.Sum64()>>32)
}

func codecs() {
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression()} {
		codecOf(name, codec)
	}
	codecOf("gzip", kgo.GzipCompression())
	codecOf("snappy", kgo.SnappyCompression())
	codecOf("lz4", kgo.Lz4Compression())
	codecOf("zstd", kgo.ZstdCompression())
	say("codecs read", described(read("codecs", 100, 20*time.Second)))
}

func codecOf(name string, codec kgo.CompressionCodec) {
	c := client(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond))
	defer c.Close()
	var records []*kgo.Record
	for i := 0; i < 20; i++ {
		records = append(records, &kgo.Record{
			Topic: prefix + "codecs", Key: fmt.Appendf(nil, "k%d", i), Value: []byte(strings.Repeat(name, 30)),
			Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}},
		})
	}
	results := c.ProduceSync(ctx, records...)
	must(results.FirstErr())
	say("codec "+name, fmt.Sprint(results[0].Record.Offset, " to ", results[19].Record.Offset))
}

func transactions() {
	c := client(kgo.TransactionalID(prefix + "id"))
	defer c.Close()
	for t := 0; t < 4; t++ {
		must(c.BeginTransaction())
		for i := 0; i < 5; i++ {
			must(c.ProduceSync(ctx, &kgo.Record{Topic: prefix + "tx", Key: []byte("k"), Value: fmt.Appendf(nil, "%d/%d", t, i)}).FirstErr())
		}
		must(c.EndTransaction(ctx, kgo.TransactionEndTry(t%2 == 0)))
	}
	isCommitted := kgo.FetchIsolationLevel(kgo.ReadCommitted())
	say("committed", described(read("tx", 10, 20*time.Second, isCommitted)))
	say("all", described(read("tx", 20, 20*time.Second)))
}

func groups() {
	for i := 0; i < 2; i++ {
		c := client(kgo.ConsumerGroup(prefix+"group"), kgo.ConsumeTopics(prefix+"codecs"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		records := poll(c, 100-60*i, 30*time.Second)
		if i == 0 {
			say("group", described(records))
			must(c.CommitRecords(ctx, records[59]))
		} else if len(records) > 0 {
			say("group goes on at", records[0].Offset)
		}
		c.Close()
	}
}

func failure(c *kgo.Client, record *kgo.Record) any {
	produced, err := c.ProduceSync(ctx, record).First()
	if err != nil {
		return err
	}
	return fmt.Sprint("accepted at ", produced.Offset)
}

func errors() {
	large := make([]byte, 5000)
	rand.New(rand.NewSource(5)).Read(large)
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "zstd": kgo.ZstdCompression()} {
		for _, idempotent := range []bool{true, false} {
			options := []kgo.Opt{kgo.ProducerBatchCompression(codec)}
			if !idempotent {
				options = append(options, kgo.DisableIdempotentWrite())
			}
			c := client(options...)
			how := fmt.Sprintf(" %s %v", name, idempotent)
			say("too large"+how, failure(c, &kgo.Record{Topic: prefix + "small", Key: []byte("k"), Value: large}))
			say("no key"+how, failure(c, &kgo.Record{Topic: prefix + "compact", Value: []byte("v")}))
			for _, hours := range []int{-50, 50} {
				at := time.Now().Add(time.Duration(hours) * time.Hour)
				say(fmt.Sprint(hours, " hours", how), failure(c, &kgo.Record{
					Topic: prefix + "fresh", Key: []byte("k"), Value: []byte("v"), Timestamp: at}))
			}
			c.Close()
		}
	}
	// an idempotent producer goes on after a refusal
	c := client()
	defer c.Close()
	for i := 0; i < 9; i++ {
		record := &kgo.Record{Topic: prefix + "compact", Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}
		if i%3 == 1 {
			record.Key = nil
		}
		say(fmt.Sprint("after refusals ", i), failure(c, record))
	}
	say("what is there", len(read("compact", 6, 20*time.Second)))
}

func main() {
	if os.Args[1] == "digest" {
		digests(os.Args[2], os.Args[3:])
		return
	}
	bootstrap, prefix, ports = os.Args[1], os.Args[2], strings.Split(os.Args[3], ",")
	limit, cancel := context.WithTimeout(context.Background(), 150*time.Second)
	defer cancel()
	ctx = limit
	topics()
	codecs()
	transactions()
	groups()
	errors()
}
