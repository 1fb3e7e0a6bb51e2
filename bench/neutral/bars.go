package main

import (
	"fmt"

	"github.com/jobq-dev/jobq/bench/sheet"
)

const ours = "jobq"

// peers are those that a cell compares with.
func peers() []string { return []string{"river", "graphile-worker", "pg-boss"} }

// ofBestPeer is our figure divided by the largest of the peers that were measured.
func ofBestPeer(section, test, figure string) func(s *sheet.Sheet) (float64, bool) {
	return func(s *sheet.Sheet) (float64, bool) {
		mine, ok := s.Median(sheet.Of(section, test, ours, figure))
		best := 0.0
		for _, peer := range peers() {
			value, _ := s.Median(sheet.Of(section, test, peer, figure))
			best = max(best, value)
		}
		return mine / best, ok && best > 0
	}
}

// bars are what we ask of ourselves in each cell.
func bars() []sheet.Bar {
	var all []sheet.Bar
	for _, slots := range slotCounts() {
		all = append(all, sheet.Bar{
			What: fmt.Sprintf("throughput, %d slots: jobs/s, of the best peer's", slots), Value: ofBestPeer("throughput", slotsName(slots), perSec), Limit: 1,
		})
	}
	for _, t := range chaos() {
		all = append(all,
			sheet.Bar{What: "chaos, " + t.name + ": rate after, of before", Value: sheet.Figure(sheet.Of("chaos", t.name, ours, ratioAfter)), Limit: 0.98},
			sheet.Bar{What: "chaos, " + t.name + ": jobs unfinished", Value: sheet.Figure(sheet.Of("chaos", t.name, ours, unfinished)), Limit: 0, Most: true})
	}
	for _, t := range pressure() {
		all = append(all, sheet.Bar{What: "pressure, " + t.name + ": rate during, of before", Value: sheet.Figure(sheet.Of("pressure", t.name, ours, ratioDuring)), Limit: 0.95})
	}
	return append(all, sheet.Bar{
		What:  "starvation, " + aged + ": low priority, of a fair share",
		Value: sheet.Figure(sheet.Of("starvation", aged, ours, "low, of a fair share")), Limit: 0.5,
	}, sheet.Bar{
		What:  "queues: rate with four, of with one",
		Value: sheet.Ratio(sheet.Of("queues", severalQueue, ours, perSec), sheet.Of("queues", oneQueue, ours, perSec)), Limit: 0.95,
	})
}
