package main

import "context"

// pair measures a variant beside its twin, and changes between them after each
// batch: what else happens on the machine then adds to both alike.
func pair(ctx context.Context, beds [2]*bed) (of [2]figures, err error) {
	for _, b := range beds {
		if err := b.clear(ctx); err != nil {
			return of, err
		}
	}
	for part := range beds[0].chunks() {
		for turn := range beds {
			i := (part + turn) % 2
			_, micros, wal, err := beds[i].cost(ctx, func() error { return beds[i].addChunk(ctx) })
			if err != nil {
				return of, err
			}
			of[i].fillMicros += micros
			of[i].fillWAL += wal
		}
	}
	for _, b := range beds {
		if err := b.filled(); err != nil {
			return of, err
		}
	}
	workers := [2]*worker{beds[0].worker(0), beds[1].worker(0)}
	for part := 0; !workers[0].done || !workers[1].done; part++ {
		for turn := range beds {
			i := (part + turn) % 2
			if workers[i].done {
				continue
			}
			_, micros, wal, err := beds[i].cost(ctx, func() error { return workers[i].step(ctx) })
			if err != nil {
				return of, err
			}
			of[i].micros += micros
			of[i].wal += wal
		}
	}
	for _, b := range beds {
		if err := b.check(ctx); err != nil {
			return of, err
		}
	}
	return of, nil
}
