//go:build !race

package main

// raceDetector says that memory is what it is for users.
const raceDetector = false
