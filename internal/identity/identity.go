// Package identity names processes, so that people recognise them and other
// processes can tell whether one is dead for certain.
package identity

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
)

// Process is what tells a process from every other, also from later ones with
// the same pid. A zero field is not known, as on other systems than Linux.
type Process struct {
	Hostname  string
	PID       int
	Start     int64  // in clock ticks since boot
	BootID    string // of this boot of the machine
	Namespace string // in which the pid counts
}

// Self is this process.
func Self() (Process, error) { return Of(os.Getpid()) }

// Of is a process of this machine and pid namespace.
func Of(pid int) (Process, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return Process{}, fmt.Errorf("hostname: %w", err)
	}
	p := Process{Hostname: hostname, PID: pid, BootID: bootID(), Namespace: pidNamespace()}
	p.Start, _, _ = stat(pid) // zero: not known
	return p, nil
}

// NewID names one worker or janitor in this process: hostname-pid-random.
func (p Process) NewID() (string, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("random part of the id: %w", err)
	}
	return p.Hostname + "-" + strconv.Itoa(p.PID) + "-" + hex.EncodeToString(random[:]), nil
}

// Death is what this process knows about another's.
type Death int

// What is known of another process.
const (
	Unknown  Death = iota // it may live: nothing here proves that it does not
	Gone                  // it ended: this machine says so
	Rebooted              // a machine of that name has booted since; another machine may have the name too
)

// Proof says what this process can prove about another one with the same
// hostname: that there is no such process any more, when it lived in this boot
// and pid namespace.
func (p Process) Proof(other Process) Death {
	switch {
	case p.Hostname != other.Hostname || p.BootID == "" || other.BootID == "":
		return Unknown
	case p.BootID != other.BootID:
		return Rebooted
	case p.Namespace == "" || p.Namespace != other.Namespace || other.Start == 0:
		return Unknown
	case isGone(other.PID, other.Start):
		return Gone
	}
	return Unknown
}
