package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// print says how a trial went, when it has ended.
func (s *suite) print(t *trial) {
	name := t.id + " " + t.name
	switch {
	case t.mutant != "" && t.caught() && t.tries > 1:
		fmt.Printf("%6.1fs  %-60s caught mutant %s at try %d: %s\n", t.took.Seconds(), name, t.mutant, t.tries, t.why())
	case t.mutant != "" && t.caught():
		fmt.Printf("%6.1fs  %-60s caught mutant %s: %s\n", t.took.Seconds(), name, t.mutant, t.why())
	case t.mutant != "":
		fmt.Printf("%6.1fs  %-60s MUTANT %s NOT CAUGHT: %s %s\n", t.took.Seconds(), name, t.mutant, t.figure, t.why())
	case t.broke():
		fmt.Printf("%6.1fs  %-60s BROKEN (seed %d): %s\n", t.took.Seconds(), name, t.seed, t.why())
		if s.verbose {
			fmt.Println(t.logs)
		}
	default:
		fmt.Printf("%6.1fs  %-60s %s\n", t.took.Seconds(), name, t.figure)
	}
}

// why is the first promises that were broken.
func (t *trial) why() string {
	var reasons []string
	for i, violation := range t.verdict.Violations {
		if i == 3 {
			reasons = append(reasons, fmt.Sprintf("and %d more", len(t.verdict.Violations)-i))
			break
		}
		reasons = append(reasons, violation.String())
	}
	if t.problem != nil {
		reasons = append(reasons, t.problem.Error())
	}
	return strings.Join(reasons, "; ")
}

// report writes the table, and returns an error when a promise was broken or a
// mutant was not caught.
func (s *suite) report() error {
	var text strings.Builder
	mutants := 0
	var broken, uncaught []string
	var lost, forgotten, stale, early, double, transitions, acknowledged, reaps int
	fmt.Fprintf(&text, "| Scenario | Runs | Figure of the last run | Violations | Verdict |\n|---|---|---|---|---|\n")
	for i := 0; i < len(s.trials); {
		first := s.trials[i]
		runs, violations, verdict, figure := 0, 0, "holds", ""
		var samples []time.Duration
		for ; i < len(s.trials) && s.trials[i].id == first.id && s.trials[i].mutant == first.mutant; i++ {
			t := s.trials[i]
			runs++
			if t.verdict != nil {
				violations += len(t.verdict.Violations)
				if t.mutant == "" {
					lost, forgotten = lost+t.verdict.Lost, forgotten+t.verdict.Forgotten
					stale, early, double = stale+t.verdict.Stale, early+t.verdict.Early, double+t.verdict.DoubleBump
					transitions, acknowledged, reaps = transitions+t.verdict.Transitions, acknowledged+t.verdict.Acknowledged, reaps+t.verdict.Reaps
				}
			}
			switch {
			case t.mutant != "":
				mutants++
				verdict, figure = "caught", t.why()
				if !t.caught() {
					uncaught = append(uncaught, t.mutant+" in "+t.id)
					verdict, figure = "**not caught**", t.figure+" "+t.why()
				}
			case t.broke():
				broken = append(broken, fmt.Sprintf("%s (seed %d)", t.id, t.seed))
				verdict, figure = "**broken**", fmt.Sprintf("seed %d: %s", t.seed, t.why())
			case verdict == "holds":
				figure, samples = t.figure, append(samples, t.samples...)
			}
		}
		if runs > 1 && len(samples) > 0 {
			slices.Sort(samples)
			figure += "; in all runs together: " + some(samples)
		}
		name := first.id + " " + first.name
		if first.mutant != "" {
			name = "mutant " + first.mutant + " in " + first.id
		}
		fmt.Fprintf(&text, "| %s | %d | %s | %d | %s |\n", name, runs, strings.NewReplacer("|", "/", "\n", " ").Replace(figure), violations, verdict)
	}
	summary := fmt.Sprintf("%d acknowledged jobs, %d transitions, %d reaps: %d lost (and %d that an asynchronous standby had not got), %d stale writes accepted, %d early reaps, %d double bumps. Mutants caught: %d/%d.",
		acknowledged, transitions, reaps, lost, forgotten, stale, early, double, mutants-len(uncaught), mutants)
	fmt.Printf("\n%s\n%s\n%d runs in %s\n", text.String(), summary, len(s.trials), time.Since(s.started).Round(time.Second))
	for _, skipped := range s.skipped {
		fmt.Println("not run:", skipped)
		fmt.Fprintf(&text, "\nNot run: %s\n", skipped)
	}
	head := fmt.Sprintf("Written by `make fault` (`go run . --seeds %d --seed %d --parallel %d` in fault/) on %s: PostgreSQL %s, %s, %d CPUs, in %s.\n"+
		"Leases of %s, extended every %s; scan %s; poll %s; max_attempts %d. What each invariant is: docs/internals/guarantees.md.\n\n%s\n\n",
		s.seeds, s.seed, s.parallel, time.Now().UTC().Format(time.DateOnly), s.cluster.server.Version(), runtime.Version(), runtime.NumCPU(),
		time.Since(s.started).Round(time.Second), lease, extendEvery, scan, poll, maxAttempts, summary)
	if err := s.page.write(head + text.String()); err != nil {
		return err
	}
	switch {
	case len(broken) > 0:
		return fmt.Errorf("%d of %d runs broke a promise: %s", len(broken), len(s.trials), strings.Join(broken, ", "))
	case len(uncaught) > 0:
		return fmt.Errorf("%d of %d mutants were not caught: %s", len(uncaught), mutants, strings.Join(uncaught, ", "))
	case len(s.trials) == 0:
		return errors.New("no such scenario")
	}
	return nil
}
