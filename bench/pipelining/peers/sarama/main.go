// A fixed number of records through sarama's AsyncProducer, acknowledged one by one; one line of
// JSON. Built once for each release: table_peers.py writes that import path (Shopify's or IBM's)
// over the one below.
package main

import (
	"log"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	metrics "github.com/rcrowley/go-metrics"
)

func main() {
	s := flags()
	config := sarama.NewConfig()
	config.Version = sarama.V2_4_0_0
	config.Net.MaxOpenRequests = s.cap
	config.Producer.RequiredAcks = sarama.RequiredAcks(s.acks)
	config.Producer.Flush.Bytes = s.batch
	config.Producer.Flush.Frequency = s.linger
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	if s.partition >= 0 {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	if s.tls != nil {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = s.tls
	}
	producer, err := sarama.NewAsyncProducer(s.brokers, config)
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

	value := sarama.ByteEncoder(letters())
	failed, why := 0, ""
	began := time.Now()
	finished := make(chan struct{})
	go func() {
		for open := s.records; open > 0; open-- {
			select {
			case <-producer.Successes():
			case e := <-producer.Errors():
				failed++
				why = e.Err.Error()
			}
		}
		close(finished)
	}()
	for i := 0; i < s.records; i++ {
		producer.Input() <- &sarama.ProducerMessage{Topic: s.topic, Value: value, Partition: int32(s.partition)}
	}
	<-finished
	seconds := time.Since(began).Seconds()
	close(stop)
	if err := producer.Close(); err != nil {
		log.Print(err)
	}
	report(s, seconds, failed, why, map[string]any{"in_flight": highest})
}
