// A fixed number of records through franz-go, acknowledged one by one; one line of JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const produce = 0 // its API key

// inFlight counts by the client's own hooks: what was written to a connection and not yet read from it.
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
	log.SetFlags(0)
	brokers := flag.String("brokers", "", "host:port,…")
	topic := flag.String("topic", "", "")
	records := flag.Int("records", 1000, "")
	partition := flag.Int("partition", -1, "-1: round robin")
	acks := flag.Int("acks", -1, "-1 or 0")
	maxInFlight := flag.Int("cap", 5, "5: the idempotent producer's own; less, or acks 0: without idempotence")
	batch := flag.Int("batch", 500000, "bytes")
	linger := flag.Duration("linger", 100*time.Millisecond, "")
	authority := flag.String("ca", "", "PEM; with -cert and -key: TLS")
	certificate := flag.String("cert", "", "PEM")
	key := flag.String("key", "", "PEM")
	flag.Parse()

	seen := &inFlight{open: map[int32]int{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*brokers, ",")...),
		kgo.DefaultProduceTopic(*topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(int32(*batch)),
		kgo.ProducerLinger(*linger),
		kgo.WithHooks(seen),
	}
	if *acks == 0 {
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	}
	if *acks == 0 || *maxInFlight != 5 { // with idempotence it is 5, whatever is asked
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(*maxInFlight))
	}
	if *partition >= 0 {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	} else {
		options = append(options, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	}
	if *authority != "" {
		options = append(options, kgo.Dialer((&tls.Dialer{
			NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: certificates(*authority, *certificate, *key),
		}).DialContext))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}

	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	var mu sync.Mutex
	var open sync.WaitGroup
	failed, why := 0, ""
	open.Add(*records)
	began := time.Now()
	for i := 0; i < *records; i++ {
		client.Produce(context.Background(), &kgo.Record{Value: value, Partition: int32(*partition)},
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
	line, _ := json.Marshal(map[string]any{
		"records": *records, "failed": failed, "why": why, "seconds": seconds,
		"in_flight": seen.highest, "in_flight_total": seen.wider,
	})
	fmt.Println(string(line))
	if failed > 0 {
		os.Exit(1)
	}
}

func certificates(authority, certificate, key string) *tls.Config {
	pem, err := os.ReadFile(authority)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}
