package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// digests prints the version of franz-go, then the digest of the first COUNT records of each topic.
// The canonical form of a record is that of tests/support/record_digest.py.
//
// main digest BOOTSTRAP TOPIC=COUNT...
func digests(bootstrap string, topics []string) {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			fmt.Println(module.Version)
		}
	}
	for _, wanted := range topics {
		topic, text, _ := strings.Cut(wanted, "=")
		count, err := strconv.Atoi(text)
		must(err)
		printDigest(bootstrap, topic, count)
	}
}

func printDigest(bootstrap, topic string, count int) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	// checksums of fetched batches are checked by default
	c, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start))
	must(err)
	defer c.Close()
	digest, read := sha256.New(), 0
	for read < count {
		fetches := c.PollFetches(context.Background())
		must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if read < count {
				digest.Write(canonical(r))
				read++
			}
		})
	}
	fmt.Printf("%s %d %x\n", topic, read, digest.Sum(nil))
}

func canonical(r *kgo.Record) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(r.Offset))
	out = binary.BigEndian.AppendUint64(out, uint64(r.Timestamp.UnixMilli()))
	out = appendSized(appendSized(out, r.Key), r.Value)
	out = binary.BigEndian.AppendUint32(out, uint32(len(r.Headers)))
	for _, header := range r.Headers {
		out = appendSized(appendSized(out, []byte(header.Key)), header.Value)
	}
	return out
}

func appendSized(out, data []byte) []byte {
	if data == nil {
		return binary.BigEndian.AppendUint32(out, 1<<32-1)
	}
	return append(binary.BigEndian.AppendUint32(out, uint32(len(data))), data...)
}
