// Package tui is jobq's terminal UI: what waits, runs and has failed, live,
// and what an operator can do about it.
//
// It is made of parts, each of which knows only those above it in this list:
//
//	theme        named styles and characters, made once for the terminal
//	widget       lines of exact widths, tables, lists, boxes, fields, pagers
//	command      what an operator can do, and with which keys
//	data         what the database has said, and the questions to ask it
//	polling      when the database is asked what
//	request      what the other parts ask the root for
//	overlay      questions, choices, text to type, help, progress
//	screen       the seven screens, each a component
//	commandline  the command lines that do the same
//	acting       changes to jobs, queues and workers; undo
//	editing      a job in the operator's own editor
//	tui          the root: connection, live events, the screen shown, what lies over what
//
// Update changes the model and does no I/O: whatever talks to the database is a
// command, and its answer is a message. A screen says which questions it wants to
// be asked (data.Want); of each panel one query is under way at most. What an
// action is about is named by job ids, and by what the operator saw of the jobs,
// never by places in a list. All text from the database passes through
// widget.Clean before it is shown. Keys and commands come from one registry
// (package command); each part has an action for the commands that it does.
package tui
