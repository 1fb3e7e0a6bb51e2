// Package tui is jobq's terminal UI: what waits, runs and has failed, live,
// and what an operator can do about it.
//
// The model holds plain data. Update changes it and does no I/O: whatever
// talks to the database is a command, and its answer is a message. A screen
// asks for panels (poll.go), each of which has one query under way at most.
// What an action is about is named by job ids, and by what the operator saw
// of the jobs, never by places in a list. All text from the database passes
// through clean (text.go) before it is shown. Keys and commands come from one
// registry (keys.go).
package tui
