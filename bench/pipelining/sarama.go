// A fixed number of records through sarama's AsyncProducer, acknowledged one by one; one line of
// JSON. Built once for each release: table_peers.py writes that import path (Shopify's or IBM's)
// over the one below.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	metrics "github.com/rcrowley/go-metrics"
)

func main() {
	log.SetFlags(0)
	brokers := flag.String("brokers", "", "host:port,…")
	topic := flag.String("topic", "", "")
	records := flag.Int("records", 1000, "")
	partition := flag.Int("partition", -1, "-1: round robin")
	acks := flag.Int("acks", -1, "-1 or 0")
	limit := flag.Int("cap", 5, "requests in flight")
	batch := flag.Int("batch", 500000, "bytes")
	linger := flag.Duration("linger", 100*time.Millisecond, "")
	flag.Parse()
	config := sarama.NewConfig()
	config.Version = sarama.V2_4_0_0
	config.Net.MaxOpenRequests = *limit
	config.Producer.RequiredAcks = sarama.RequiredAcks(*acks)
	config.Producer.Flush.Bytes = *batch
	config.Producer.Flush.Frequency = *linger
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	if *partition >= 0 {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	producer, err := sarama.NewAsyncProducer(strings.Split(*brokers, ","), config)
	if err != nil {
		log.Fatal(err)
	}

	var highest int64
	stop := make(chan struct{})
	go func() { // the counter goes up and down: what it showed at most
		for ticker := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-ticker.C:
				if counter, ok := config.MetricRegistry.Get("requests-in-flight").(metrics.Counter); ok {
					if now := counter.Count(); now > atomic.LoadInt64(&highest) {
						atomic.StoreInt64(&highest, now)
					}
				}
			}
		}
	}()

	value := make(sarama.ByteEncoder, 1000)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	failed, why := 0, ""
	began := time.Now()
	finished := make(chan struct{})
	go func() {
		for open := *records; open > 0; open-- {
			select {
			case <-producer.Successes():
			case e := <-producer.Errors():
				failed++
				why = e.Err.Error()
			}
		}
		close(finished)
	}()
	for i := 0; i < *records; i++ {
		producer.Input() <- &sarama.ProducerMessage{Topic: *topic, Value: value, Partition: int32(*partition)}
	}
	<-finished
	seconds := time.Since(began).Seconds()
	close(stop)
	if err := producer.Close(); err != nil {
		log.Print(err)
	}
	line, _ := json.Marshal(map[string]any{
		"records": *records, "failed": failed, "why": why, "seconds": seconds, "in_flight": highest,
	})
	fmt.Println(string(line))
	if failed > 0 {
		os.Exit(1)
	}
}
