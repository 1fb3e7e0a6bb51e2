package db

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// errURLPassword says what is wrong with a URL whose parts cannot be told apart. It shows none of them: each may be a
// part of a password.
var errURLPassword = errors.New(`database URL: where its user and password end is not clear, so it is not shown. ` +
	`In them, encode each special character: @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25`)

// urlScheme is what a database URL begins with. After a +, SQLAlchemy and Django have the name of a driver.
var urlScheme = regexp.MustCompile(`^(postgres(?:ql)?)(?:\+[A-Za-z0-9_]+)?://`)

// errURLQuery is likewise about a password that is one of the values after the ?.
var errURLQuery = errors.New(`database URL: it cannot be read, and has a password, so it is not shown. ` +
	`In its values, encode each special character: & as %26, @ as %40, / as %2F, # as %23, % as %25`)

// secretInQuery finds a secret among the values after the ?, however its name is written.
var secretInQuery = regexp.MustCompile(`(?i)pass|%`)

// ParseURL is pgxpool.ParseConfig for what a person gives: a URL or keywords, also a URL in the form of SQLAlchemy, such
// as postgresql+psycopg://. Its errors never have a part of a password, and a URL that could be read in two ways is
// refused, since the errors of later calls name the host and the database.
func ParseURL(url string) (*pgxpool.Config, error) {
	found := urlScheme.FindStringSubmatch(url)
	if found == nil {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, errors.New(`database address: it is neither a URL that begins with postgres:// or postgresql://, nor keywords such as ` +
				`"host=db user=app password='…' dbname=app"; it may have a password, so it is not shown`)
		}
		return config, nil
	}
	scheme, rest := found[1]+"://", url[len(found[0]):]
	user, address, err := cutUser(rest)
	if err != nil {
		return nil, err
	}
	if config, err := pgxpool.ParseConfig(scheme + rest); err == nil {
		return config, nil
	}
	// What is left without the user may be shown, and says what is wrong, if it is wrong there.
	if _, err := pgxpool.ParseConfig(scheme + address); err != nil && !secretInQuery.MatchString(address) {
		return nil, errors.New("database URL: " + err.Error()) // not err itself, which has the URL
	}
	if user == "" {
		return nil, errURLQuery
	}
	return nil, errURLPassword
}

// cutUser cuts user:password from what follows the scheme of a URL. It refuses what could be read in another way:
//
//	u:p@host/db           u:p          host/db
//	u:p@ss@host/db        refused      which @ ends the password?
//	u:p/ss@host/db        refused      is /ss@host/db the database?
//	u:p@host/db?a=b@c     u:p          host/db?a=b@c
//	u:p@ss?a=b@host/db    refused
func cutUser(rest string) (user, address string, err error) {
	authority, after := rest, ""
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		authority, after = rest[:at], rest[at:]
	}
	path, query, _ := strings.Cut(after, "?")
	ats := strings.Count(authority, "@")
	switch {
	case ats > 1, strings.Contains(path, "@"), strings.Contains(after, "#"):
		return "", "", errURLPassword
	case strings.Contains(query, "@") && (strings.Contains(authority, ":") || ats == 1) && strings.Contains(query[strings.Index(query, "@"):], "/"):
		return "", "", errURLPassword
	case ats == 0:
		return "", rest, nil
	}
	user, host, _ := strings.Cut(authority, "@")
	return user, host + after, nil
}
