// franz-go as a peer: a request a line on stdin, an answer a line on stdout, both JSON, as
// worker.py speaks.
//
// It parses a batch, checks its CRC and makes every record; it judges nothing, so its work is not
// the same. Its garbage is collected by other threads: times are wall, and the process may use the
// cores that Kafka's JVM may use.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type request struct {
	Operation string
	Path      string
	Samples   int
	SampleNs  float64 `json:"sample_ns"`
}

type answer struct {
	Ns      []float64 `json:"ns,omitempty"`
	Records int       `json:"records,omitempty"`
	Allocs  float64   `json:"allocations"`
	Bytes   float64   `json:"bytes"`
	Error   string    `json:"error,omitempty"`
}

func measure(r request) (answer, error) {
	batch, err := os.ReadFile(r.Path)
	if err != nil {
		return answer{}, err
	}
	decompressor := kgo.DefaultDecompressor()
	options := kgo.ProcessFetchPartitionOpts{Topic: "bench"}
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = batch
	run := func() kgo.FetchPartition {
		read, _ := kgo.ProcessFetchPartition(options, &partition, decompressor, nil)
		return read
	}
	read := run()
	if read.Err != nil {
		return answer{}, read.Err
	}
	if len(read.Records) == 0 {
		return answer{}, fmt.Errorf("no records")
	}
	out := answer{Records: len(read.Records)}
	again := 1
	for {
		start := time.Now()
		for i := 0; i < again; i++ {
			run()
		}
		took := float64(time.Since(start).Nanoseconds())
		if took >= r.SampleNs/2 {
			again = int(float64(again)*r.SampleNs/took) + 1
			break
		}
		again *= 2
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for s := 0; s < r.Samples; s++ {
		start := time.Now()
		for i := 0; i < again; i++ {
			run()
		}
		out.Ns = append(out.Ns, float64(time.Since(start).Nanoseconds())/float64(again))
	}
	runtime.ReadMemStats(&after)
	runs := float64(again * r.Samples)
	out.Allocs = float64(after.Mallocs-before.Mallocs) / runs
	out.Bytes = float64(after.TotalAlloc-before.TotalAlloc) / runs
	return out, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var out answer
		if err == nil {
			out, err = measure(r)
		}
		if err != nil {
			out = answer{Error: err.Error()}
		}
		text, _ := json.Marshal(out)
		fmt.Println(string(text))
	}
}
