package measure

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	chartRows    = 6
	chartColumns = 60
)

// blocks fill a character cell by eighths, from below.
var blocks = [...]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// Chart draws a rate over time with text, from zero up to top, or up to its
// own maximum when top is zero: charts with one top can be compared.
func Chart(series Series, top float64) string {
	series = series.Fit(chartColumns)
	if top == 0 {
		top = Top(series)
	}
	top = max(top, 1)
	var out strings.Builder
	for row := chartRows - 1; row >= 0; row-- {
		label := ""
		if row == chartRows-1 {
			label = Short(top)
		}
		fmt.Fprintf(&out, "%7s │", label)
		for _, value := range series.Values {
			eighths := int(math.Round(value/top*chartRows*8)) - row*8
			out.WriteString(blocks[min(max(eighths, 0), 8)])
		}
		out.WriteByte('\n')
	}
	length := time.Duration(len(series.Values)) * series.Every
	width := len(series.Values)
	end := length.Round(time.Second / 10).String()
	fmt.Fprintf(&out, "%7s └%s\n%8s 0%*s\n", "0", strings.Repeat("─", width), "", max(width-1, len(end)+1), end)
	return out.String()
}

// Top is the largest value of several series.
func Top(all ...Series) float64 {
	top := 0.0
	for _, series := range all {
		for _, value := range series.Values {
			top = max(top, value)
		}
	}
	return top
}

// Short is a number in three digits or so: 17.3k, 2.4M.
func Short(value float64) string {
	switch size := math.Abs(value); {
	case size >= 1e7:
		return fmt.Sprintf("%.0fM", value/1e6)
	case size >= 1e6:
		return fmt.Sprintf("%.1fM", value/1e6)
	case size >= 1e5:
		return fmt.Sprintf("%.0fk", value/1e3)
	case size >= 1e3:
		return fmt.Sprintf("%.1fk", value/1e3)
	case size >= 100 || value == 0:
		return fmt.Sprintf("%.0f", value)
	case size >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}
