// A runner for sarama, profile reader: Broker.Fetch, which its consumer calls for each Fetch
// request, at a broker in this process that answers with the bytes of the case.
//
//	go build -C conformance/runners/sarama -o /tmp/sarama
//	batchval conformance --profile reader --exec /tmp/sarama
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"reflect"

	"github.com/IBM/sarama"
)

const topic = "t"

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

// response returns a Fetch response, version 4, of one partition that holds the batch.
func response(correlation uint32, batch []byte) []byte {
	body := binary.BigEndian.AppendUint32(nil, correlation)
	body = binary.BigEndian.AppendUint32(body, 0) // throttle_time_ms
	body = binary.BigEndian.AppendUint32(body, 1) // topics
	body = binary.BigEndian.AppendUint16(body, uint16(len(topic)))
	body = append(body, topic...)
	body = binary.BigEndian.AppendUint32(body, 1) // partitions
	body = binary.BigEndian.AppendUint32(body, 0) // partition_index
	body = binary.BigEndian.AppendUint16(body, 0) // error_code
	body = binary.BigEndian.AppendUint64(body, math.MaxInt64) // high_watermark
	body = binary.BigEndian.AppendUint64(body, math.MaxInt64) // last_stable_offset
	body = binary.BigEndian.AppendUint32(body, 0) // aborted_transactions
	body = binary.BigEndian.AppendUint32(body, uint32(len(batch)))
	body = append(body, batch...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// serve answers the request of each connection with the next batch.
func serve(listener net.Listener, batches <-chan []byte) {
	for batch := range batches {
		connection, err := listener.Accept()
		must(err)
		var header [12]byte // size, api_key, api_version, correlation_id
		_, err = io.ReadFull(connection, header[:])
		must(err)
		_, err = io.CopyN(io.Discard, connection, int64(binary.BigEndian.Uint32(header[:4]))-8)
		must(err)
		_, err = connection.Write(response(binary.BigEndian.Uint32(header[8:]), batch))
		must(err)
		must(connection.Close())
	}
}

// decode returns the number of records that sarama read. It closes a connection after some errors
// of decompression, so each case has its own.
func decode(address string, config *sarama.Config) (int, error) {
	broker := sarama.NewBroker(address)
	must(broker.Open(config))
	defer broker.Close()
	request := &sarama.FetchRequest{Version: 4, MaxBytes: 1 << 20}
	request.AddBlock(topic, 0, 0, 1<<20, -1)
	fetched, err := broker.Fetch(request)
	if err != nil {
		return 0, err
	}
	count := 0
	block := fetched.GetBlock(topic, 0)
	for _, records := range block.RecordsSet {
		if records.RecordBatch != nil {
			count += len(records.RecordBatch.Records)
		}
		if records.MsgSet != nil {
			for _, message := range records.MsgSet.Messages {
				count += len(message.Messages())
			}
		}
	}
	if count == 0 && !isPassed(block) {
		return 0, errors.New("no record")
	}
	return count, nil
}

// isPassed returns whether the consumer goes on after bytes without a record, as its parseResponse
// does after a whole batch. After a part of a batch it stays at its offset and asks for more bytes.
func isPassed(block *sarama.FetchResponseBlock) bool {
	if block.Partial || len(block.RecordsSet) > 0 { // without a record, only a part is in the set
		return false
	}
	next := reflect.ValueOf(block).Elem().FieldByName("recordsNextOffset")
	return !next.IsNil() && next.Elem().Int() <= block.HighWaterMarkOffset
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	batches := make(chan []byte, 1)
	go serve(listener, batches)
	config := sarama.NewConfig()
	config.ApiVersionsRequest = false
	lines := bufio.NewReader(os.Stdin)
	verdicts := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		must(json.Unmarshal(line, &asked))
		batches <- asked.Batch
		answer := verdict{ID: asked.ID}
		if records, err := decode(listener.Addr().String(), config); err != nil {
			answer.Error = err.Error()
		} else {
			answer.Accept, answer.Records = true, &records
		}
		must(verdicts.Encode(answer))
	}
}
