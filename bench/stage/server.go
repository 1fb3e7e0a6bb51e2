// Package stage is where contenders are measured: a private PostgreSQL, a database for each, and the processes that run the
// jobs.
package stage

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// Server is a private PostgreSQL.
type Server struct {
	Postgres *postgres.Server
	Admin    *pgxpool.Pool
	config   Config
	serial   int
}

// Config says what takes part.
type Config struct {
	Peers string // the folder of the peers that run on Node
	Only  string // systems, separated by commas; "" means all
	// Fleeting is for tests: a crash of the machine may lose what was committed.
	Fleeting bool
}

// settings are for durable commits on a machine of this size; the extension counts statements.
func settings() map[string]string {
	return map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": "500",
		"shared_preload_libraries": "pg_stat_statements", "track_activity_query_size": "4096",
	}
}

// Start starts the server. Stop ends and removes it.
func Start(ctx context.Context, config Config) (*Server, error) {
	started, err := postgres.Start(ctx, postgres.Config{Durable: !config.Fleeting, Settings: settings()})
	if err != nil {
		return nil, err
	}
	s := &Server{Postgres: started, config: config}
	if s.Admin, err = pgxpool.New(ctx, started.URL("postgres")); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

// Stop ends the server, also after the context has ended.
func (s *Server) Stop(ctx context.Context) {
	s.Admin.Close()
	if err := s.stop(ctx); err != nil {
		log.Print(err)
	}
}

func (s *Server) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return s.Postgres.Stop(ctx)
}

// Chosen are the contenders that take part: of the names given, not excluded
// by the user, and installed.
func (s *Server) Chosen(names ...string) []Contender {
	var chosen []Contender
	for _, c := range Contenders() {
		wanted := len(names) == 0
		for _, name := range names {
			wanted = wanted || c.String() == name || c.Name == name
		}
		if wanted && c.Installed(s.config.Peers) && listed(s.config.Only, c.Name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// listed says whether a name is in a list with commas, in which nothing means everything.
func listed(list, name string) bool {
	return list == "" || strings.Contains(","+list+",", ","+name+",")
}

// CheckOnly refuses systems that there are not, and one that was asked for by name and is not installed.
func CheckOnly(config Config) error {
	var known []string
	for _, c := range Contenders() {
		if !slices.Contains(known, c.Name) {
			known = append(known, c.Name)
		}
		if config.Only != "" && listed(config.Only, c.Name) && !c.Installed(config.Peers) {
			return fmt.Errorf("%s is not there: run make bench-before", beforeProgram(config.Peers))
		}
	}
	return CheckNames(config.Only, known...)
}

// CheckNames refuses a list with commas that has a name which is not known.
func CheckNames(list string, known ...string) error {
	for name := range strings.SplitSeq(list, ",") {
		if list != "" && !slices.Contains(known, name) {
			return fmt.Errorf("no %q: there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
