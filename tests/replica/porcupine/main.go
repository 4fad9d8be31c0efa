// Judges histories with porcupine, another checker of linearizability: to check ours.
//
//	stdin   one history a line: [[begin, end, key, kind, word, [words] or null], ...]; end -1: never
//	stdout  one answer a line: Ok, Illegal or Unknown (after seconds)
//
// The state of a key is a list of words, here as text. A call that never ended may happen at any
// time after it began; at the end of all time it changes nothing that anybody saw.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type input struct {
	kind string
	key  int64
	word string
}

func step(state, in, out interface{}) (bool, interface{}) {
	words, call := state.(string), in.(input)
	switch call.kind {
	case "put":
		return true, call.word
	case "append":
		return true, words + call.word
	}
	return out == nil || out.(string) == words, words
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	keys := map[int64][]porcupine.Operation{}
	for _, one := range history {
		key := one.Input.(input).key
		keys[key] = append(keys[key], one)
	}
	found := [][]porcupine.Operation{}
	for _, one := range keys {
		found = append(found, one)
	}
	return found
}

func text(words []int64) string {
	var found strings.Builder
	for _, word := range words {
		fmt.Fprintf(&found, "%d,", word)
	}
	return found.String()
}

func read(line []byte) []porcupine.Operation {
	var rows [][]json.RawMessage
	if err := json.Unmarshal(line, &rows); err != nil {
		panic(err)
	}
	found := []porcupine.Operation{}
	for _, row := range rows {
		var begin, end, key, word int64
		var kind string
		var words *[]int64
		for at, into := range []interface{}{&begin, &end, &key, &kind, &word, &words} {
			if err := json.Unmarshal(row[at], into); err != nil {
				panic(err)
			}
		}
		if end < 0 {
			if kind == "read" {
				continue
			}
			end = math.MaxInt64
		}
		one := porcupine.Operation{
			Input: input{kind, key, text([]int64{word})}, Call: begin, Return: end,
		}
		if kind == "read" && words != nil {
			one.Output = text(*words)
		}
		found = append(found, one)
	}
	return found
}

func main() {
	model := porcupine.Model{
		Partition: partition,
		Init:      func() interface{} { return "" },
		Step:      step,
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		fmt.Println(porcupine.CheckOperationsTimeout(model, read(lines.Bytes()), 3*time.Second))
	}
}
