// A fixed number of records through franz-go, acknowledged one by one; one line of JSON.
package main

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const produce = 0 // its API key

// inFlight counts by the client's own hooks: what was written to a connection and not yet read from
// it.
type inFlight struct {
	mu                    sync.Mutex
	open                  map[int32]int
	total, highest, wider int
}

func (f *inFlight) OnBrokerWrite(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == produce && err == nil {
		f.add(meta.NodeID, 1)
	}
}

func (f *inFlight) OnBrokerRead(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == produce && err == nil {
		f.add(meta.NodeID, -1)
	}
}

func (f *inFlight) add(node int32, change int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[node] += change
	f.total += change
	f.highest = max(f.highest, f.open[node])
	f.wider = max(f.wider, f.total)
}

func main() {
	s := flags()
	seen := &inFlight{open: map[int32]int{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(s.brokers...),
		kgo.DefaultProduceTopic(s.topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(int32(s.batch)),
		kgo.ProducerLinger(s.linger),
		kgo.WithHooks(seen),
	}
	if s.acks == 0 {
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	}
	if s.acks == 0 || s.cap != 5 { // with idempotence it is 5, whatever is asked
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(s.cap))
	}
	if s.partition >= 0 {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	} else {
		options = append(options, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	}
	if s.tls != nil {
		options = append(options, kgo.Dialer((&tls.Dialer{
			NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: s.tls,
		}).DialContext))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}

	value := letters()
	var mu sync.Mutex
	var open sync.WaitGroup
	failed, why := 0, ""
	open.Add(s.records)
	began := time.Now()
	for i := 0; i < s.records; i++ {
		client.Produce(context.Background(), &kgo.Record{Value: value, Partition: int32(s.partition)},
			func(_ *kgo.Record, err error) {
				if err != nil {
					mu.Lock()
					failed++
					why = err.Error()
					mu.Unlock()
				}
				open.Done()
			})
	}
	open.Wait()
	seconds := time.Since(began).Seconds()
	client.Close()
	report(s, seconds, failed, why, map[string]any{"in_flight": seen.highest, "in_flight_total": seen.wider})
}
