// What the clients in Go share: their flags, the record, and the line of JSON at the end.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"
)

type settings struct {
	brokers                              []string
	topic                                string
	records, partition, acks, cap, batch int
	linger                               time.Duration
	tls                                  *tls.Config // nil: none
}

func flags() *settings {
	log.SetFlags(0)
	s := &settings{}
	brokers := flag.String("brokers", "", "host:port,…")
	flag.StringVar(&s.topic, "topic", "", "")
	flag.IntVar(&s.records, "records", 1000, "")
	flag.IntVar(&s.partition, "partition", -1, "-1: round robin")
	flag.IntVar(&s.acks, "acks", -1, "-1 or 0")
	flag.IntVar(&s.cap, "cap", 5, "requests in flight")
	flag.IntVar(&s.batch, "batch", 500000, "bytes")
	flag.DurationVar(&s.linger, "linger", 100*time.Millisecond, "")
	authority := flag.String("ca", "", "PEM; with -cert and -key: TLS")
	certificate := flag.String("cert", "", "PEM")
	key := flag.String("key", "", "PEM")
	flag.Parse()
	s.brokers = strings.Split(*brokers, ",")
	if *authority != "" {
		s.tls = certificates(*authority, *certificate, *key)
	}
	return s
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

func letters() []byte {
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	return value
}

// report ends the program.
func report(s *settings, seconds float64, failed int, why string, seen map[string]any) {
	fields := map[string]any{"records": s.records, "failed": failed, "why": why, "seconds": seconds}
	for name, value := range seen {
		fields[name] = value
	}
	line, _ := json.Marshal(fields)
	fmt.Println(string(line))
	if failed > 0 {
		os.Exit(1)
	}
}
