// sarama with the Version of an old broker. The operations are those of java/OldProducer and
// java/OldConsumer.
//
// main OPERATION NAME=VALUE...
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
}

var acks = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

// scramClient is the conversation of SCRAM-SHA-256.
type scramClient struct{ *scram.ClientConversation }

func (s *scramClient) Begin(user, password, authorization string) error {
	client, failure := scram.SHA256.NewClient(user, password, authorization)
	if failure == nil {
		s.ClientConversation = client.NewConversation()
	}
	return failure
}

func config(r *report) *sarama.Config {
	c := sarama.NewConfig()
	version, failure := sarama.ParseKafkaVersion(r.arguments["version"])
	if failure != nil {
		r.print(failure)
	}
	c.Version = version
	c.Metadata.Retry.Max = 1
	c.Net.DialTimeout, c.Net.ReadTimeout = 6*time.Second, 6*time.Second
	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 0
	c.Producer.Flush.MaxMessages = 200
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Fetch.Default = 32768
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	if mechanism := r.arguments["mechanism"]; mechanism != "" {
		c.Net.SASL.Enable = true
		// sarama asks for that with version 0 of the handshake
		c.ApiVersionsRequest = false
		c.Net.SASL.Version = sarama.SASLHandshakeV0
		c.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
		c.Net.SASL.User, c.Net.SASL.Password = r.arguments["user"], r.arguments["password"]
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{} }
	}
	return c
}

func servers(r *report) []string { return []string{r.arguments["bootstrap"]} }

// encoded is the encoder of bytes that may be null.
func encoded(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func produce(r *report) error {
	r.put("acked", 0)
	var failures []error
	for i, codec := range r.list("codec") {
		failures = append(failures, sendTo(r, r.list("topic")[i], codec))
	}
	return errors.Join(failures...)
}

func sendTo(r *report, topic, codec string) error {
	c := config(r)
	c.Producer.Compression = codecs[codec]
	c.Producer.RequiredAcks = acks[r.arguments["acks"]]
	producer, failure := sarama.NewAsyncProducer(servers(r), c)
	if failure != nil {
		return failure
	}
	count := r.number("count")
	go func() {
		for number := int64(0); number < count; number++ {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: topic, Key: encoded(keyOf(number)), Value: encoded(valueOf(number)),
			}
		}
	}()
	var last error
	for ended := int64(0); ended < count; ended++ {
		select {
		case <-producer.Successes():
			r.acked++
			r.put("acked", r.acked)
		case refused := <-producer.Errors():
			last = refused.Err
		}
	}
	return errors.Join(last, producer.Close())
}

func consume(r *report) error {
	for _, topic := range r.list("topic") {
		if failure := consumeFrom(r, topic); failure != nil {
			return failure
		}
	}
	return nil
}

func consumeFrom(r *report, topic string) error {
	consumer, failure := sarama.NewConsumer(servers(r), config(r))
	if failure != nil {
		return failure
	}
	partition, failure := consumer.ConsumePartition(topic, 0, 0)
	if failure != nil {
		return failure
	}
	r.last = -1
	end := r.records + r.number("count")
	var after <-chan time.Time
	for {
		if r.records >= end && after == nil {
			after = time.After(time.Second)
		}
		select {
		case m := <-partition.Messages():
			r.add(m.Offset, m.Key, m.Value)
		case failure := <-partition.Errors():
			// it tries again: what it cannot read becomes the error of the report
			r.put("noticed", failure.Err.Error())
		case <-after:
			return consumer.Close()
		}
	}
}

// member reads the next records of a group, commits after the last, and leaves.
type member struct {
	report *report
	leave  context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	count := m.report.number("count")
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			m.report.add(message.Offset, message.Key, message.Value)
			m.report.put("next", message.Offset+1)
			session.MarkMessage(message, "")
			if m.report.records == count {
				session.Commit()
				m.leave()
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(r *report) error {
	joined, failure := sarama.NewConsumerGroup(servers(r), r.arguments["group"], config(r))
	if failure != nil {
		return failure
	}
	go func() {
		for noticed := range joined.Errors() {
			r.put("noticed", noticed.Error())
		}
	}()
	running, leave := context.WithCancel(context.Background())
	defer leave()
	for running.Err() == nil {
		topics := []string{r.arguments["topic"]}
		if failure := joined.Consume(running, topics, &member{r, leave}); failure != nil {
			return failure
		}
	}
	return joined.Close()
}

func offsets(r *report) error {
	client, failure := sarama.NewClient(servers(r), config(r))
	if failure != nil {
		return failure
	}
	for name, time := range map[string]int64{
		"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest,
	} {
		offset, failure := client.GetOffset(r.arguments["topic"], 0, time)
		if failure != nil {
			return failure
		}
		r.put(name, offset)
	}
	return client.Close()
}

func commit(r *report) error {
	if failure := managed(r, func(partition sarama.PartitionOffsetManager) {
		partition.MarkOffset(r.number("offset"), "")
	}); failure != nil {
		return failure
	}
	return managed(r, func(partition sarama.PartitionOffsetManager) {
		next, _ := partition.NextOffset()
		r.put("committed", next)
	})
}

// managed calls a function with the offset of a group, and commits what it marks.
func managed(r *report, use func(sarama.PartitionOffsetManager)) error {
	c := config(r)
	client, failure := sarama.NewClient(servers(r), c)
	if failure != nil {
		return failure
	}
	manager, failure := sarama.NewOffsetManagerFromClient(r.arguments["group"], client)
	if failure != nil {
		return failure
	}
	partition, failure := manager.ManagePartition(r.arguments["topic"], 0)
	if failure != nil {
		return failure
	}
	go func() {
		for noticed := range partition.Errors() {
			r.put("noticed", noticed.Error())
		}
	}()
	use(partition)
	manager.Commit()
	partition.AsyncClose()
	return errors.Join(manager.Close(), client.Close())
}

func main() {
	operations := map[string]func(*report) error{
		"produce": produce, "consume": consume, "group": group, "offsets": offsets, "commit": commit,
	}
	r := newReport(os.Args[2:])
	r.print(operations[os.Args[1]](r))
}
