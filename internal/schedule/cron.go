package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// calendarYears is after how many years the calendar repeats itself, with its leap
// years and days of the week: what has not come by then never comes.
const calendarYears = 400

// field is one of the five fields of a cron expression.
type field struct {
	name     string
	min, max int
	last     int      // the last value of *; that of max is another name of min where they differ
	names    []string // of the values from min on
}

var (
	minutes  = field{name: "minute", max: 59, last: 59}
	hours    = field{name: "hour", max: 23, last: 23}
	days     = field{name: "day of the month", min: 1, max: 31, last: 31}
	months   = field{name: "month", min: 1, max: 12, last: 12, names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")}
	weekdays = field{name: "day of the week", max: 7, last: 6, names: strings.Fields("sun mon tue wed thu fri sat")} // 7 is Sunday, too
)

// named are the names for whole expressions.
var named = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// cron is a parsed expression: of each field, the bits of the values that it has.
type cron struct {
	minutes, hours, days, months, weekdays uint64
	// anyDay says that one of the two fields for days begins with *: then a day
	// must be in both. Else it must be in one of the two.
	anyDay bool
}

const allHours = 1<<24 - 1

func (c *cron) everyHour() bool { return c.hours == allHours }

// parse reads an expression.
func parse(expression string) (*cron, error) {
	text := strings.TrimSpace(expression)
	if strings.HasPrefix(text, "@") {
		meant, ok := named[strings.ToLower(text)]
		if !ok {
			return nil, errors.New("there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually; for an interval such as 90s, set that and no cron expression")
		}
		text = meant
	}
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return nil, errors.New("the time zone is an argument of its own")
	}
	parts := strings.Fields(text)
	if len(parts) != 5 {
		return nil, fmt.Errorf("it must have 5 fields (minute, hour, day of the month, month, day of the week), not %d", len(parts))
	}
	c := &cron{anyDay: strings.HasPrefix(parts[2], "*") || strings.HasPrefix(parts[4], "*")}
	for i, target := range []struct {
		field field
		bits  *uint64
	}{{minutes, &c.minutes}, {hours, &c.hours}, {days, &c.days}, {months, &c.months}, {weekdays, &c.weekdays}} {
		var err error
		if *target.bits, err = target.field.parse(parts[i]); err != nil {
			return nil, fmt.Errorf("%s %q: %w", target.field.name, parts[i], err)
		}
	}
	c.weekdays = c.weekdays&(1<<7-1) | c.weekdays>>7
	return c, nil
}

// parse reads a field: a list of values, ranges and steps.
func (f field) parse(text string) (set uint64, err error) {
	for _, part := range strings.Split(text, ",") {
		bits, err := f.part(part)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	return set, nil
}

// part reads one element of a list: *, 5, 5-9, */10, 5-59/10 or 5/10, which goes
// from 5 to the end.
func (f field) part(text string) (set uint64, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	low, high := f.min, f.last
	if first, last, isRange := strings.Cut(span, "-"); span != "*" {
		if low, err = f.value(first); err != nil {
			return 0, err
		}
		switch {
		case isRange:
			if high, err = f.value(last); err != nil {
				return 0, err
			}
			if f.last < f.max && high == f.min && low > f.min { // fri-sun
				high = f.max
			}
		case !stepped || low > high:
			high = low
		}
	}
	if low > high {
		return 0, fmt.Errorf("the range %s goes backwards: write two ranges", span)
	}
	step := 1
	if stepped {
		if step, err = number(stepText); err != nil || step < 1 || step > f.max {
			return 0, fmt.Errorf("the step after / must be 1 to %d", f.max)
		}
	}
	for value := low; value <= high; value += step {
		set |= 1 << value
	}
	return set, nil
}

// value reads one value, a number or a name.
func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	value, err := number(text)
	if err != nil || value < f.min || value > f.max {
		names := ""
		if len(f.names) > 0 {
			names = fmt.Sprintf(" or %s to %s", f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Errorf("values are %d to %d%s", f.min, f.max, names)
	}
	return value, nil
}

var errNumber = errors.New("not a number")

// number reads digits, and nothing else: no sign and no blank.
func number(text string) (int, error) {
	if text == "" || len(text) > 3 || strings.Trim(text, "0123456789") != "" {
		return 0, errNumber
	}
	return strconv.Atoi(text)
}

// from finds the first time of day, not before the one given, that the
// expression has. Both are whole minutes, as if in UTC.
func (c *cron) from(wall time.Time) (time.Time, bool) {
	for last := wall.Year() + calendarYears; wall.Year() <= last; {
		year, month, day := wall.Date()
		switch {
		case c.months&(1<<month) == 0:
			wall = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.onDay(wall):
			wall = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		default:
			hour, minute := wall.Hour(), wall.Minute()
			if c.hours&(1<<hour) != 0 {
				if minute, ok := at(c.minutes, minute); ok {
					return time.Date(year, month, day, hour, minute, 0, 0, time.UTC), true
				}
			}
			if hour, ok := at(c.hours, hour+1); ok {
				minute, _ = at(c.minutes, 0)
				return time.Date(year, month, day, hour, minute, 0, 0, time.UTC), true
			}
			wall = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		}
	}
	return time.Time{}, false
}

func (c *cron) onDay(wall time.Time) bool {
	inMonth, inWeek := c.days&(1<<wall.Day()) != 0, c.weekdays&(1<<wall.Weekday()) != 0
	if c.anyDay {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// at is the lowest value of a set that is not below another.
func at(set uint64, lowest int) (int, bool) {
	rest := set >> lowest << lowest
	return bits.TrailingZeros64(rest), rest != 0
}
