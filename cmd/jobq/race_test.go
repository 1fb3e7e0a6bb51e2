//go:build race

package main

// raceDetector says that memory is not what it would be.
const raceDetector = true
