// What sarama sees, a line each. A line holds no address, no time and no topic's full name, so that
// a run through the gate and a direct one can be compared.
//
// main BOOTSTRAP PREFIX PORT,PORT... VERSION
// main digest BOOTSTRAP TOPIC=COUNT...   (digest.go)
package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var (
	bootstrap, prefix string
	version           sarama.KafkaVersion
)

func say(what string, result any) {
	fmt.Println(what + ": " + strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(result), prefix, "*"), "\n", " "))
}

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = version
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.MaxMessageBytes = 4 << 20
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = 3 * time.Second
	return c
}

func admin(ports []string) {
	a, err := sarama.NewClusterAdmin([]string{bootstrap}, config())
	must(err)
	defer a.Close()
	make := func(name string, partitions int32, entries ...string) {
		entriesByName := map[string]*string{}
		for i := 0; i < len(entries); i += 2 {
			entriesByName[entries[i]] = &entries[i+1]
		}
		detail := &sarama.TopicDetail{
			NumPartitions:     partitions,
			ReplicationFactor: 1,
			ConfigEntries:     entriesByName,
		}
		must(a.CreateTopic(prefix+name, detail, false))
	}
	make("codecs", 1)
	make("idempotent", 1)
	make("tx", 1)
	make("small", 1, "max.message.bytes", "1000")
	make("compact", 1, "cleanup.policy", "compact")
	make("fresh", 1, "message.timestamp.before.max.ms", "3600000", "message.timestamp.after.max.ms", "3600000")
	brokers, controller, err := a.DescribeCluster()
	must(err)
	say("controller", controller)
	for _, broker := range brokers {
		known := false
		for _, port := range ports {
			known = known || strings.HasSuffix(broker.Addr(), ":"+port)
		}
		say("node", known)
	}
	described, err := a.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: prefix + "small", ConfigNames: []string{"max.message.bytes"}})
	must(err)
	say("config", described[0].Value)
}

func message(topic string, key, value string) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: prefix + topic, Value: sarama.StringEncoder(value)}
	if key != "" {
		m.Key = sarama.StringEncoder(key)
	}
	return m
}

func codecs() {
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP,
		sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		c := config()
		c.Producer.Compression = codec
		p, err := sarama.NewSyncProducer([]string{bootstrap}, c)
		must(err)
		var messages []*sarama.ProducerMessage
		for i := 0; i < 20; i++ {
			m := message("codecs", fmt.Sprint("k", i), strings.Repeat(codec.String(), 30))
			m.Headers = []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(codec.String())}}
			messages = append(messages, m)
		}
		must(p.SendMessages(messages))
		say("codec "+codec.String(), fmt.Sprint(messages[0].Offset, " to ", messages[19].Offset))
		must(p.Close())
	}
	say("codecs read", read("codecs", 100, sarama.ReadUncommitted))
}

func read(topic string, count int, isolation sarama.IsolationLevel) string {
	conf := config()
	conf.Consumer.IsolationLevel = isolation
	c, err := sarama.NewConsumer([]string{bootstrap}, conf)
	must(err)
	defer c.Close()
	p, err := c.ConsumePartition(prefix+topic, 0, sarama.OffsetOldest)
	must(err)
	defer p.Close()
	hash := fnv.New64a()
	limit := time.After(20 * time.Second)
	n := 0
	for n < count {
		select {
		case m := <-p.Messages():
			fmt.Fprint(hash, m.Offset, m.Key, m.Value)
			for _, header := range m.Headers {
				fmt.Fprint(hash, header.Key, header.Value)
			}
			n++
		case <-limit:
			return fmt.Sprint("only ", n)
		}
	}
	return fmt.Sprintf("%d records, hash %x", n, hash.Sum64()>>32)
}

func idempotent() *sarama.Config {
	c := config()
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	return c
}

func sequences() {
	p, err := sarama.NewSyncProducer([]string{bootstrap}, idempotent())
	must(err)
	for i := 0; i < 30; i++ {
		_, offset, err := p.SendMessage(message("idempotent", "k", fmt.Sprint(i)))
		must(err)
		if offset != int64(i) {
			say("out of order", fmt.Sprint(i, " at ", offset))
		}
	}
	must(p.Close())
	say("idempotent", read("idempotent", 30, sarama.ReadUncommitted))
}

func transactions() {
	c := idempotent()
	c.Producer.Transaction.ID = prefix + "id"
	p, err := sarama.NewSyncProducer([]string{bootstrap}, c)
	must(err)
	defer p.Close()
	for t := 0; t < 4; t++ {
		must(p.BeginTxn())
		for i := 0; i < 5; i++ {
			_, _, err := p.SendMessage(message("tx", "k", fmt.Sprint(t, "/", i)))
			must(err)
		}
		if t%2 == 0 {
			must(p.CommitTxn())
		} else {
			must(p.AbortTxn())
		}
	}
	say("committed", read("tx", 10, sarama.ReadCommitted))
}

// A member that reads so many, marks what is to be gone on from, and leaves.
type member struct {
	count int
	mark  int64
	first int64
	read  int
	done  context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case got, ok := <-c.Messages():
			if !ok {
				return nil
			}
			if m.read == 0 {
				m.first = got.Offset
			}
			m.read++
			if got.Offset == m.mark {
				s.MarkMessage(got, "")
				s.Commit()
			}
			if m.read == m.count {
				m.done()
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func groups() {
	for i := 0; i < 2; i++ {
		g, err := sarama.NewConsumerGroup([]string{bootstrap}, prefix+"group", config())
		must(err)
		limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		m := &member{count: 100 - 60*i, mark: 59, done: cancel}
		for limit.Err() == nil {
			if err := g.Consume(limit, []string{prefix + "codecs"}, m); err != nil && limit.Err() == nil {
				must(err)
			}
		}
		say("group", fmt.Sprint("from ", m.first, " on ", m.read))
		must(g.Close())
	}
}

func failure(p sarama.SyncProducer, m *sarama.ProducerMessage) string {
	_, offset, err := p.SendMessage(m)
	if err == nil {
		return fmt.Sprint("accepted at ", offset)
	}
	var code sarama.KError
	if errors.As(err, &code) {
		return "error " + strconv.Itoa(int(code))
	}
	return err.Error()
}

func refusals() {
	large := make([]byte, 5000)
	rand.New(rand.NewSource(5)).Read(large)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionZSTD} {
		for _, c := range []*sarama.Config{config(), idempotent()} {
			c.Producer.Compression = codec
			c.Producer.Retry.Max = 1
			p, err := sarama.NewSyncProducer([]string{bootstrap}, c)
			must(err)
			how := fmt.Sprint(" ", codec, " ", c.Producer.Idempotent)
			say("too large"+how, failure(p, message("small", "k", string(large))))
			say("no key"+how, failure(p, message("compact", "", "v")))
			for _, hours := range []int{-50, 50} {
				m := message("fresh", "k", "v")
				m.Timestamp = time.Now().Add(time.Duration(hours) * time.Hour)
				say(fmt.Sprint(hours, " hours", how), failure(p, m))
			}
			say("and goes on"+how, failure(p, message("compact", "k", "v")))
			must(p.Close())
		}
	}
	say("what is there", read("compact", 4, sarama.ReadUncommitted))
}

func main() {
	if os.Args[1] == "digest" {
		digests(os.Args[2], os.Args[3:])
		return
	}
	bootstrap, prefix = os.Args[1], os.Args[2]
	var err error
	version, err = sarama.ParseKafkaVersion(os.Args[4])
	must(err)
	admin(strings.Split(os.Args[3], ","))
	codecs()
	sequences()
	transactions()
	groups()
	refusals()
}
