package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := postgres.Start(ctx, postgres.Config{InMemory: true})
	if err != nil { panic(err) }
	defer s.Stop(context.Background())
	fmt.Println(s.URL("postgres"))
	pool, err := pgxpool.New(ctx, s.URL("postgres"))
	if err != nil { panic(err) }
	_, err = migrate.Up(ctx, pool, &migrate.Config{Schema: "jobq", Logger: slog.New(slog.DiscardHandler)})
	fmt.Println("up:", err)
	pool.Close()
	<-ctx.Done()
}
