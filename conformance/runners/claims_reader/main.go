// Command claims_reader reads claims of Kafka record batches from JSON lines on standard input and
// writes what it finds, one JSON line for each, to standard output.
package main

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Sizes, offsets and bits of blocks, tags, batches and the carriers in a payload.
const (
	blockMin, blockMax     = 23, 256
	tagOneBytes, crcBytes  = 18, 4
	magicOffset, crcOffset = 16, 17
	codecOffset            = 22
	headerBytes            = 61
	codecGzip, codecZstd   = 1, 4
	zstdStart, gzipStart   = 10, 14
	flagFHCRC, flagFEXTRA  = 0x02, 0x04
)

// What a reading is where it is not claims.
const none, unbound = "none", "unbound"

var (
	claimsID  = []byte("BV")
	zstdMagic = []byte{0x5b, 0x2a, 0x4d, 0x18}
	gzipMagic = []byte{0x1f, 0x8b, 0x08}
)

// field is one entry of the further claims of a block. It is written as a pair of number and bytes.
type field struct {
	number  uint32
	content []byte
}

// MarshalJSON returns the pair of the number and the bytes in hexadecimal.
func (f field) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{f.number, hex.EncodeToString(f.content)})
}

// claimsOne are the three claims that versions 1 and 2 have in common.
type claimsOne struct {
	BatchMinTimestamp int64 `json:"batch_min_timestamp"`
	RecordsNumber     int32 `json:"records_number"`
	NullKeys          int8  `json:"null_keys"`
}

// claims are what a block of version 2 states.
type claims struct {
	claimsOne
	UncompressedBytes int32   `json:"uncompressed_bytes"`
	MaxRecordBytes    int32   `json:"max_record_bytes"`
	Fields            []field `json:"fields"`
}

// versionedOne are the claims of version 1 as a reading shows them.
type versionedOne struct {
	Version int `json:"version"`
	claimsOne
}

// readUvarint returns an unsigned varint of 32 bits and the bytes after it. It refuses one that is
// cut, padded, longer than 5 bytes or above the highest uint32.
func readUvarint(data []byte) (value uint32, rest []byte, ok bool) {
	var sum uint64
	for i := 0; i < len(data) && i < 5; i++ {
		sum |= uint64(data[i]&0x7f) << (7 * i)
		if data[i]&0x80 == 0 {
			padded := i > 0 && data[i] == 0
			return uint32(sum), data[i+1:], !padded && sum <= math.MaxUint32
		}
	}
	return 0, nil, false
}

// readField returns the next field and the bytes after it.
func readField(data []byte) (f field, rest []byte, ok bool) {
	number, data, numbered := readUvarint(data)
	size, data, sized := readUvarint(data)
	if !numbered || !sized || uint64(size) > uint64(len(data)) {
		return field{}, nil, false
	}
	return field{number, data[:size]}, data[size:], true
}

// readFields returns the fields of a block. Their numbers have to rise, and nothing may follow
// them.
func readFields(data []byte) ([]field, bool) {
	fields := []field{}
	count, data, ok := readUvarint(data)
	if !ok {
		return nil, false
	}
	for ; count > 0; count-- {
		f, rest, ok := readField(data)
		if !ok || (len(fields) > 0 && f.number <= fields[len(fields)-1].number) {
			return nil, false
		}
		fields, data = append(fields, f), rest
	}
	return fields, len(data) == 0
}

// readClaimsOne returns the three claims of version 1 from 13 bytes or more.
func readClaimsOne(data []byte) (one claimsOne, ok bool) {
	if len(data) < 13 {
		return one, false
	}
	one.BatchMinTimestamp = int64(binary.BigEndian.Uint64(data))
	one.RecordsNumber = int32(binary.BigEndian.Uint32(data[8:]))
	one.NullKeys = int8(data[12])
	return one, true
}

// readBlock returns the claims of a block of version 2, or nil where the bytes are no block.
func readBlock(data []byte) *claims {
	if len(data) < blockMin || len(data) > blockMax || data[0] != 2 {
		return nil
	}
	one, _ := readClaimsOne(data[1:])
	fields, ok := readFields(data[22:])
	if !ok {
		return nil
	}
	uncompressed, longest := binary.BigEndian.Uint32(data[14:]), binary.BigEndian.Uint32(data[18:])
	return &claims{one, int32(uncompressed), int32(longest), fields}
}

// readSchemaIDs returns the ids of the content of field 1, and whether it states that no value is
// null. The ids are nil where the content has another form.
func readSchemaIDs(content []byte) (ids []int32, noValueNull bool) {
	size := len(content)
	if size < 1 || size > 1+4*16 || size%4 != 1 || content[0] > 1 {
		return nil, false
	}
	ids = []int32{}
	for at := 1; at < size; at += 4 {
		id := int32(binary.BigEndian.Uint32(content[at:]))
		if at > 1 && id <= ids[len(ids)-1] {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, content[0] == 1
}

// readingOfBlock returns the claims of these bytes, or "unbound" where they are no block.
func readingOfBlock(data []byte) any {
	if c := readBlock(data); c != nil {
		return c
	}
	return unbound
}

// readTag returns what the tag next to a batch of magic 2 states. It is unbound unless it ends with
// the crc that stands in the batch.
func readTag(tag, batch []byte) any {
	if len(batch) < headerBytes || batch[magicOffset] != 2 || len(tag) < tagOneBytes {
		return unbound
	}
	body, crc := tag[:len(tag)-crcBytes], tag[len(tag)-crcBytes:]
	if !bytes.Equal(crc, batch[crcOffset:crcOffset+crcBytes]) {
		return unbound
	}
	if body[0] != 1 {
		return readingOfBlock(body)
	}
	if one, ok := readClaimsOne(body[1:]); ok && len(tag) == tagOneBytes {
		return versionedOne{1, one}
	}
	return unbound
}

// readZstd returns the claims in a skippable frame at the beginning of a zstd payload.
func readZstd(payload []byte) any {
	if len(payload) < zstdStart || !bytes.HasPrefix(payload, zstdMagic) {
		return none
	}
	size := uint64(binary.LittleEndian.Uint32(payload[4:]))
	if size < 2 || !bytes.HasPrefix(payload[8:], claimsID) {
		return none
	}
	if 8+size > uint64(len(payload)) {
		return unbound
	}
	return readingOfBlock(payload[zstdStart : 8+size])
}

// readGzip returns the claims in the first subfield of the extra field of a gzip payload.
func readGzip(payload []byte) any {
	if len(payload) < gzipStart || !bytes.HasPrefix(payload, gzipMagic) || payload[3]&flagFEXTRA == 0 {
		return none
	}
	size := int(binary.LittleEndian.Uint16(payload[10:]))
	if size < 2 || !bytes.HasPrefix(payload[12:], claimsID) {
		return none
	}
	if payload[3]&flagFHCRC != 0 || 12+size > len(payload) {
		return unbound
	}
	return readingOfBlock(readSubfields(payload[12 : 12+size]))
}

// readSubfields returns the content of the first subfield. It is nil unless the subfields fill the
// extra field, and only the first has the id of claims.
func readSubfields(extra []byte) (first []byte) {
	for index := 0; len(extra) > 0; index++ {
		if len(extra) < 4 || (index > 0 && bytes.HasPrefix(extra, claimsID)) {
			return nil
		}
		size := int(binary.LittleEndian.Uint16(extra[2:]))
		if size > len(extra)-4 {
			return nil
		}
		if index == 0 {
			first = extra[4 : 4+size]
		}
		extra = extra[4+size:]
	}
	return first
}

// readCarried returns the claims in a batch: in the header of magic 3, or in the payload of
// magic 2.
func readCarried(batch []byte) any {
	if len(batch) < headerBytes || batch[magicOffset] < 2 || batch[magicOffset] > 3 {
		return none
	}
	payload := batch[headerBytes:]
	if batch[magicOffset] == 3 {
		if one, ok := readClaimsOne(payload); ok {
			return versionedOne{1, one}
		}
		return unbound
	}
	switch batch[codecOffset] & 7 {
	case codecGzip:
		return readGzip(payload)
	case codecZstd:
		return readZstd(payload)
	}
	return none
}

// combine returns the one reading of a tag and a batch that both hold something. It is unbound
// unless both can be read and agree. The batch's block then says as much as the tag, or more.
func combine(tag, carried any) any {
	block, isBlock := carried.(*claims)
	one, isOne := tag.(versionedOne)
	if isBlock && (isOne && one.claimsOne == block.claimsOne || reflect.DeepEqual(tag, carried)) {
		return block
	}
	return unbound
}

// readBatch returns what a reader finds in a batch and its tag, which may be nil.
func readBatch(batch []byte, tag *hexBytes) any {
	carried := readCarried(batch)
	if tag == nil {
		return carried
	}
	if carried == none {
		return readTag(*tag, batch)
	}
	return combine(readTag(*tag, batch), carried)
}

// ledgerLine is one sender with its policy, and the batches that it sends.
type ledgerLine struct {
	Secret       hexBytes `json:"secret"`
	Sender       string   `json:"sender"`
	Policy       string   `json:"policy"`
	FirstChecked int64    `json:"first_checked"`
	DemotionMs   int64    `json:"demotion_ms"`
	Steps        []struct {
		CRC    uint32  `json:"crc"`
		NowMs  int64   `json:"now_ms"`
		Answer *string `json:"answer"`
	} `json:"steps"`
}

// ledger is what a validator keeps about one sender.
type ledger struct {
	line    *ledgerLine
	mode    string
	rate    float64
	pads    uint64 // how many pads were taken
	honest  int64  // honest batches since the sender was new
	demoted bool
	until   int64 // end of the demotion
}

// newLedger returns the ledger of a new sender, or an error where the policy has another form.
func newLedger(line *ledgerLine) (*ledger, error) {
	mode, text, audit := strings.Cut(line.Policy, ":")
	l := &ledger{line: line, mode: mode}
	if !audit && (mode == "verify" || mode == "trust" || mode == "ignore") {
		return l, nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if !audit || mode != "audit" || err != nil || !(rate >= 0 && rate <= 1) {
		return nil, fmt.Errorf("unknown policy %q", line.Policy)
	}
	l.rate = rate
	return l, nil
}

// sampled takes a pad and reports whether it draws the batch with this crc. A MAC of 64 bytes gives
// eight pads, and the last one is used first.
func (l *ledger) sampled(crc uint32) bool {
	mac := hmac.New(sha512.New, l.line.Secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, l.pads/8))
	mac.Write([]byte(l.line.Sender))
	pad := binary.LittleEndian.Uint64(mac.Sum(nil)[8*(7-l.pads%8):])
	l.pads++
	limit := math.Round(math.Ldexp(l.rate, 64))
	return limit >= math.Ldexp(1, 64) || pad^uint64(crc)*0x9E3779B97F4A7C15 < uint64(limit)
}

// decide returns "verify" or "trust" for a batch with claims. A demotion that is over makes the
// sender a new one.
func (l *ledger) decide(crc uint32, now int64) string {
	if l.demoted && now >= l.until {
		l.demoted, l.honest = false, 0
	}
	if l.demoted || l.mode == "verify" || l.mode == "ignore" {
		return "verify"
	}
	if l.mode == "audit" && (l.sampled(crc) || l.honest < l.line.FirstChecked) {
		return "verify"
	}
	return "trust"
}

// note enters what was found in a batch: an honest one counts, a lie demotes, all else is nothing.
func (l *ledger) note(answer string, now int64) {
	switch answer {
	case "honest":
		l.honest++
	case "lying":
		l.demoted, l.honest, l.until = true, 0, now+l.line.DemotionMs
	}
}

// decideSteps returns the decision of each step of a line.
func decideSteps(line *ledgerLine) ([]string, error) {
	l, err := newLedger(line)
	decisions := []string{}
	for i := 0; err == nil && i < len(line.Steps); i++ {
		step := line.Steps[i]
		decisions = append(decisions, l.decide(step.CRC, step.NowMs))
		if step.Answer != nil {
			l.note(*step.Answer, step.NowMs)
		}
	}
	return decisions, err
}

// hexBytes are bytes that stand in JSON as hexadecimal text.
type hexBytes []byte

// UnmarshalText reads the hexadecimal text.
func (h *hexBytes) UnmarshalText(text []byte) error {
	data, err := hex.DecodeString(string(text))
	*h = data
	return err
}

// inputLine is a line of any kind. Each kind uses its own keys.
type inputLine struct {
	Name    string    `json:"name"`
	Block   hexBytes  `json:"block"`
	Content hexBytes  `json:"content"`
	Batch   hexBytes  `json:"batch"`
	Tag     *hexBytes `json:"tag"`
	ledgerLine
}

// answer returns the answer to a line of this kind, or an error where it has none.
func answer(kind string, line []byte) (out map[string]any, err error) {
	var in inputLine
	if err = json.Unmarshal(line, &in); err != nil {
		return nil, err
	}
	out = map[string]any{"name": in.Name}
	switch kind {
	case "blocks":
		out["claims"] = readBlock(in.Block)
	case "schema_ids":
		out["schema_ids"], out["no_value_null"] = readSchemaIDs(in.Content)
	case "readings":
		out["reads"] = readBatch(in.Batch, in.Tag)
	case "ledger":
		out["decisions"], err = decideSteps(&in.ledgerLine)
	}
	return out, err
}

// run answers all lines of the input, and ends with the first that it cannot answer.
func run(kind string, in io.Reader, out io.Writer) error {
	reader, encoder := bufio.NewReader(in), json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) == 0 && err == io.EOF {
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		result, err := answer(kind, line)
		if err != nil {
			return err
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
}

// main runs the program, and ends it with code 2 and one line of text if it cannot go on.
func main() {
	kinds := "blocks schema_ids readings ledger"
	if len(os.Args) != 2 || !slices.Contains(strings.Fields(kinds), os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: claims_reader KIND, one of:", kinds)
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	err := run(os.Args[1], os.Stdin, out)
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "claims_reader: %v\n", err)
		os.Exit(2)
	}
}
