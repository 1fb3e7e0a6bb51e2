// Package schedule computes when a schedule fires: by a cron expression in a time
// zone, or every so often. It knows neither the database nor the clock.
//
// A moment at which a schedule fires is a tick. Whoever asks with the same
// expression gets the same ticks, wherever and whenever it asks: so any number of
// janitors agree on them.
package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // time zones for machines and containers that have none
	"unicode/utf8"
)

const (
	// EveryMin and EveryMax are the limits of an interval.
	EveryMin = time.Second
	EveryMax = 366 * 24 * time.Hour
	// cronMax is how many characters an expression may have.
	cronMax = 255
	// zoneMax is how many characters the name of a time zone may have.
	zoneMax = 64
	// yearMax is the last year that PostgreSQL, Go and JSON all can write.
	yearMax = 9999
)

// Ticks are the moments at which a schedule fires. Cron and Every make them.
type Ticks struct {
	cron  *cron
	zone  *time.Location
	every time.Duration
}

// Cron returns the ticks of a cron expression of five fields (minute, hour, day
// of the month, month, day of the week), or a name such as @daily, by the clocks
// of a time zone such as Europe/Berlin.
//
// Where clocks are set forward or back, an expression for every hour follows the
// time that passes. One for particular hours fires once for each time of day:
//
//	02:30 is skipped: it fires when the clocks have been set forward, at 03:00
//	02:30 comes twice: it fires the first time
func Cron(expression, zone string) (Ticks, error) {
	if count := utf8.RuneCountInString(expression); count > cronMax {
		return Ticks{}, fmt.Errorf("cron must be 1 to %d characters, not %d", cronMax, count)
	}
	parsed, err := parse(expression)
	if err != nil {
		return Ticks{}, fmt.Errorf("cron %q: %w", expression, err)
	}
	location, err := loadZone(zone)
	if err != nil {
		return Ticks{}, err
	}
	if _, ok := parsed.from(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return Ticks{}, fmt.Errorf("cron %q never fires: no month that it names has such a day", expression)
	}
	return Ticks{cron: parsed, zone: location}, nil
}

// Every returns the ticks of an interval, which are counted from 1970-01-01 00:00
// UTC: every 15 minutes is at 10:00, 10:15, 10:30 and so on, whenever the schedule
// was made and however often it is set again.
func Every(interval time.Duration) (Ticks, error) {
	if interval < EveryMin || interval > EveryMax || interval%time.Second != 0 {
		return Ticks{}, fmt.Errorf("every %s: must be whole seconds, from 1s to 366d", interval)
	}
	return Ticks{every: interval, zone: time.UTC}, nil
}

// Of returns the ticks of a schedule that has either a cron expression or an interval.
func Of(cron, zone string, every time.Duration) (Ticks, error) {
	if cron == "" {
		return Every(every)
	}
	return Cron(cron, zone)
}

// Next returns the first tick after the moment, in UTC. There is none after the
// year 9999.
func (t Ticks) Next(after time.Time) (next time.Time, ok bool) {
	switch {
	case t.every > 0:
		step := int64(t.every / time.Second)
		seconds := after.Unix()
		next, ok = time.Unix(seconds-mod(seconds, step)+step, 0), true
	case t.cron.everyHour():
		next, ok = t.nextOfAll(after)
	default:
		next, ok = t.nextOfEachTime(after)
	}
	next = next.UTC()
	return next, ok && next.Year() <= yearMax
}

func mod(a, b int64) int64 { return ((a % b) + b) % b }

// Last returns the latest ticks after one moment and not after another, at most
// count, in their order. It does not compute those before them, of which there may
// be millions.
func (t Ticks) Last(after, until time.Time, count int) []time.Time {
	for window := time.Minute; ; window *= 2 {
		from := until.Add(-window)
		whole := !from.After(after)
		if whole {
			from = after
		}
		var ticks []time.Time
		for tick, ok := t.Next(from); ok && !tick.After(until); tick, ok = t.Next(tick) {
			ticks = append(ticks, tick)
		}
		if len(ticks) >= count || whole {
			return ticks[max(len(ticks)-count, 0):]
		}
	}
}

// nextOfAll finds the next moment at which the zone's clocks show a time that the
// expression has. It goes from one change of the clocks to the next, between which
// they are a fixed offset from UTC.
func (t Ticks) nextOfAll(after time.Time) (time.Time, bool) {
	from := after.Truncate(time.Minute).Add(time.Minute)
	for {
		local := from.In(t.zone)
		_, seconds := local.Zone()
		offset := time.Duration(seconds) * time.Second
		wall, ok := t.cron.from(upToMinute(from.UTC().Add(offset)))
		if !ok {
			return time.Time{}, false
		}
		_, end := local.ZoneBounds()
		if next := wall.Add(-offset); end.IsZero() || next.Before(end) {
			return next, true
		}
		from = end
	}
}

func upToMinute(moment time.Time) time.Time {
	return moment.Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
}

// nextOfEachTime finds the next moment of those at which the zone's clocks first
// show, or first have passed, each time that the expression has. These moments are
// in the order of the times.
func (t Ticks) nextOfEachTime(after time.Time) (time.Time, bool) {
	_, seconds := after.In(t.zone).Zone()
	wall := after.UTC().Add(time.Duration(seconds) * time.Second).Truncate(time.Minute)
	for {
		var ok bool
		if wall, ok = t.cron.from(wall); !ok {
			return time.Time{}, false
		}
		if next := firstMoment(wall, t.zone); next.After(after) {
			return next, true
		}
		wall = wall.Add(time.Minute)
	}
}

// firstMoment is when the zone's clocks first show a time of day, which is given
// as if in UTC; where they skip it, when they have been set forward.
func firstMoment(wall time.Time, zone *time.Location) time.Time {
	moment := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, zone)
	_, seconds := moment.Zone()
	shown := moment.UTC().Add(time.Duration(seconds) * time.Second)
	start, end := moment.ZoneBounds()
	switch {
	case shown.Before(wall): // skipped, and Date took the offset of after the change
		return end
	case shown.After(wall): // skipped, and it took that of before
		return start
	case start.IsZero():
		return moment
	}
	_, before := start.Add(-time.Nanosecond).In(zone).Zone()
	if earlier := wall.Add(-time.Duration(before) * time.Second); earlier.Before(start) && earlier.Before(moment) {
		return earlier
	}
	return moment
}

// zoneName is the form of the names of the IANA database. Other files beside them,
// such as localtime, posix/Europe/Berlin or posixrules, differ from machine to machine.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]{0,31}(/[A-Z][A-Za-z0-9_+-]{0,31}){0,2}$`)

// loadZone finds a time zone by its IANA name. The zone of the machine is none:
// another janitor's may be another one.
func loadZone(name string) (*time.Location, error) {
	if utf8.RuneCountInString(name) > zoneMax {
		return nil, fmt.Errorf("time_zone must be 1 to %d characters, not %d", zoneMax, utf8.RuneCountInString(name))
	}
	if name == "Local" || name == "Factory" || !zoneName.MatchString(name) {
		return nil, fmt.Errorf("time zone %q: %w", name, errZone)
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, errZone)
	}
	return location, nil
}

var errZone = errors.New("unknown; it must be an IANA name such as Europe/Berlin or UTC")
