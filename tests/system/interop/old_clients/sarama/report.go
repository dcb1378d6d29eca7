package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// report is what one operation has found: a line of JSON, printed once. Arguments are NAME=VALUE.
//
// A client may wait for ever. After "seconds" what is known is printed, and the program ends.
type report struct {
	arguments map[string]string
	fields    map[string]any
	digest    hash.Hash
	acked     int64
	records   int64
	disorder  int64
	last      int64
	mutex     sync.Mutex
}

func newReport(pairs []string) *report {
	r := &report{
		arguments: map[string]string{}, fields: map[string]any{}, digest: sha256.New(), last: -1,
	}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		r.arguments[name] = value
	}
	seconds := r.number("seconds")
	time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		r.print(fmt.Errorf("not finished after %d s", seconds))
	})
	return r
}

// print prints what is known, with the error if there is one, and ends the program.
func (r *report) print(failure error) {
	r.mutex.Lock()
	if r.records > 0 {
		r.fields["digest"] = fmt.Sprintf("%x", r.digest.Sum(nil))
	}
	r.fields["records"], r.fields["disordered"] = r.records, r.disorder
	r.fields["error"] = nil
	if failure != nil {
		r.fields["error"] = failure.Error()
	}
	line, _ := json.Marshal(r.fields)
	fmt.Println(string(line))
	os.Exit(0)
}

func (r *report) put(name string, value any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.fields[name] = value
}

// add counts and digests a record; it counts too those whose offset does not rise.
func (r *report) add(offset int64, key, value []byte) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if offset <= r.last {
		r.disorder++
	}
	r.last = offset
	r.records++
	for _, data := range [][]byte{key, value} {
		length := uint32(len(data))
		if data == nil {
			length = ^uint32(0)
		}
		r.digest.Write(binary.BigEndian.AppendUint32(nil, length))
		r.digest.Write(data)
	}
}

// list is the values of an argument, with commas between them.
func (r *report) list(name string) []string { return strings.Split(r.arguments[name], ",") }

func (r *report) number(name string) int64 {
	number, failure := strconv.ParseInt(r.arguments[name], 10, 64)
	if failure != nil {
		panic(fmt.Sprintf("invalid %s %q: expected a number", name, r.arguments[name]))
	}
	return number
}

// keyOf is the key of a record, as tests/system/interop/old_clients/records.py has it.
func keyOf(number int64) []byte {
	if number%50 == 24 {
		return nil
	}
	return []byte(fmt.Sprint("key-", number))
}

// valueOf is the value of a record, as tests/system/interop/old_clients/records.py has it.
func valueOf(number int64) []byte {
	if number%50 == 49 {
		return nil
	}
	return []byte(fmt.Sprint("value-", number, "-", strings.Repeat(".", int(number%100))))
}
