// A runner for franz-go, profile reader: kgo.ProcessFetchPartition, which its consumer calls for
// each partition of a Fetch response.
//
//	go build -C conformance/runners/franz_go -o /tmp/franz_go
//	batchval conformance --profile reader --exec /tmp/franz_go
package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type question struct {
	ID    string `json:"id"`
	Batch []byte `json:"batch"`
}

type verdict struct {
	ID      string `json:"id"`
	Accept  bool   `json:"accept"`
	Error   string `json:"error,omitempty"`
	Records *int   `json:"records,omitempty"`
}

func judge(asked question) verdict {
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = asked.Batch
	options := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Offset: math.MinInt64}
	read, next := kgo.ProcessFetchPartition(options, &partition, kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		return verdict{ID: asked.ID, Error: read.Err.Error()}
	}
	if next == options.Offset { // the consumer fetches the same offset again
		return verdict{ID: asked.ID, Error: "no progress"}
	}
	records := len(read.Records)
	return verdict{ID: asked.ID, Accept: true, Records: &records}
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	verdicts := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		if err := verdicts.Encode(judge(asked)); err != nil {
			panic(err)
		}
	}
}
