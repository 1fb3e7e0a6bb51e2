package jobqtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// templateTimeout is the longest time in which a template is made, with what the application
// adds to it.
const templateTimeout = 10 * time.Minute

// usedPattern finds the day in the comment of a template, and usedComment writes it.
const (
	usedPattern = "last used on ([0-9]{4}-[0-9]{2}-[0-9]{2})"
	usedComment = "template of jobqtest, last used on %s"
)

// template returns the name of a finished template for the options. If there is none, it makes
// one, while other sessions wait. It stores in the template's comment that it is in use.
//
// A template is made under another name, with the key of this session in it, and renamed when
// it is finished. So each template that is there is complete.
func (s *server) template(options *Options) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), templateTimeout)
	defer cancel()
	name, err := s.templateName(ctx, options)
	if err != nil {
		return "", err
	}
	isThere, err := s.use(ctx, name)
	if err != nil || isThere {
		return name, err
	}
	if err := s.exec(ctx, "select pg_advisory_lock($1)", lockOf(name)); err != nil {
		return "", err
	}
	if isThere, err = s.use(ctx, name); err == nil && !isThere {
		err = s.makeTemplate(ctx, name, options)
	}
	unlocked := s.exec(ctx, "select pg_advisory_unlock($1)", lockOf(name))
	if err := errors.Join(err, unlocked); err != nil {
		return "", fmt.Errorf("template of the test databases: %w", err)
	}
	return name, nil
}

// templateName has a hash of all that goes into the template, and of the role that makes it:
// another role may not use what this role owns there.
func (s *server) templateName(ctx context.Context, options *Options) (string, error) {
	var role string
	if err := s.conn.QueryRow(ctx, "select current_user::text").Scan(&role); err != nil {
		return "", err
	}
	content := sha256.New()
	err := fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := migrations.FS.ReadFile(path)
		fmt.Fprintf(content, "%s %d\n%s", path, len(file), file)
		return err
	})
	fmt.Fprintf(content, "%q %q %q %t", role, options.Schema, options.Version, options.Prepare != nil)
	return prefix + hex.EncodeToString(content.Sum(nil))[:12] + "_template", err
}

// use says whether the template is there, and stores the day in its comment, so that sweep
// knows that it is in use.
func (s *server) use(ctx context.Context, name string) (isThere bool, err error) {
	var comment, today string
	err = s.conn.QueryRow(ctx, `select coalesce(max(d.datname), '') <> '', coalesce(max(shobj_description(d.oid, 'pg_database')), ''), current_date::text
		from pg_database d where d.datname = $1`, name).Scan(&isThere, &comment, &today)
	if err != nil || !isThere {
		return false, err
	}
	if used := fmt.Sprintf(usedComment, today); comment != used {
		// Another session may write the same at this moment, which fails one of them.
		_ = s.exec(ctx, fmt.Sprintf("comment on database %s is '%s'", name, used))
	}
	return true, nil
}

func (s *server) makeTemplate(ctx context.Context, name string, options *Options) error {
	draft := s.name(name)
	if err := s.create(ctx, draft, "template0"); err != nil {
		return err
	}
	if err := s.fill(ctx, draft, options); err != nil {
		return err
	}
	// From here on nobody can connect to it: a connection would prevent copies.
	if err := s.exec(ctx, "alter database "+draft+" with is_template true allow_connections false"); err != nil {
		return err
	}
	if err := s.exec(ctx, "alter database "+draft+" rename to "+name); err != nil {
		problem := s.dropTemplate(ctx, draft)
		s.forget(draft)
		// Advisory locks are per database. So a process that is connected to another
		// database of the server may have made the template meanwhile.
		isThere, useErr := s.use(ctx, name)
		if isThere && problem == nil {
			return nil
		}
		return errors.Join(err, problem, useErr)
	}
	s.forget(draft)
	_, err := s.use(ctx, name)
	return err
}

// fill makes the tables in a template.
func (s *server) fill(ctx context.Context, database string, options *Options) error {
	pool, err := pgxpool.New(ctx, withDatabase(s.url, database))
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, &migrate.Config{Schema: options.Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if options.Prepare == nil {
		return nil
	}
	if err := options.Prepare(ctx, pool); err != nil {
		return fmt.Errorf("Options.Prepare: %w", err)
	}
	return nil
}
