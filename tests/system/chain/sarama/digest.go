package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// digests prints the version of sarama, then the digest of the first COUNT records of each topic.
// The canonical form of a record is that of tests/support/record_digest.py.
//
// main digest BOOTSTRAP TOPIC=COUNT...
func digests(bootstrap string, topics []string) {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/IBM/sarama" {
			fmt.Println(module.Version)
		}
	}
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 20 * time.Millisecond
	consumer, err := sarama.NewConsumer([]string{bootstrap}, c)
	must(err)
	for _, wanted := range topics {
		topic, text, _ := strings.Cut(wanted, "=")
		count, err := strconv.Atoi(text)
		must(err)
		printDigest(consumer, topic, count)
	}
	must(consumer.Close())
}

func printDigest(consumer sarama.Consumer, topic string, count int) {
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	digest := sha256.New()
	for read := 0; read < count; read++ {
		select {
		case m := <-partition.Messages():
			digest.Write(canonical(m))
		case failure := <-partition.Errors():
			must(failure)
		}
	}
	fmt.Printf("%s %d %x\n", topic, count, digest.Sum(nil))
	must(partition.Close())
}

func canonical(m *sarama.ConsumerMessage) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(m.Offset))
	out = binary.BigEndian.AppendUint64(out, uint64(m.Timestamp.UnixMilli()))
	out = appendSized(appendSized(out, m.Key), m.Value)
	out = binary.BigEndian.AppendUint32(out, uint32(len(m.Headers)))
	for _, header := range m.Headers {
		out = appendSized(appendSized(out, header.Key), header.Value)
	}
	return out
}

func appendSized(out, data []byte) []byte {
	if data == nil {
		return binary.BigEndian.AppendUint32(out, 1<<32-1)
	}
	return append(binary.BigEndian.AppendUint32(out, uint32(len(data))), data...)
}
