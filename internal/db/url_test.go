package db_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A URL is read as pgx reads it, also in the form of SQLAlchemy. One whose password is not encoded is refused with what to
// encode, and without the password.
func TestParseURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][3]string{
		"postgres://u:secret@host/db":                              {"secret", "host", "db"},
		"postgresql+psycopg://u:secret@host:5433/db":               {"secret", "host", "db"},
		"postgresql+psycopg2://u:p%40s%2Fs%23%25%3F%3A@host/db":    {"p@s/s#%?:", "host", "db"},
		"postgres://u:a:b@host/db":                                 {"a:b", "host", "db"},
		"postgres://host/db?user=ann@corp&password=secret":         {"secret", "host", "db"},
		"postgres://u:secret@host/db?application_name=me@there":    {"secret", "host", "db"},
		"host=host user=u password='sec ret' dbname=db":            {"sec ret", "host", "db"},
		"postgres://u:secret@/db?host=/var/run/postgresql&port=54": {"secret", "/var/run/postgresql", "db"},
	} {
		config, err := db.ParseURL(url)
		require.NoError(t, err, url)
		require.Equal(t, want, [3]string{config.ConnConfig.Password, config.ConnConfig.Host, config.ConnConfig.Database}, url)
	}
	for _, password := range []string{"sec@ret1", "sec/ret1", "sec#ret1", "sec%ret1", "sec@re/t1", "sec@re?t=1", "1234?ret=1", "sec?ret1", "s@e@c/r#e%t"} {
		_, err := db.ParseURL("postgres://user:" + password + "@host/db")
		require.ErrorContains(t, err, "encode each special character: @ as %40", password)
	}
	_, err := db.ParseURL("postgres://u:secret@host:port/db")
	require.ErrorContains(t, err, "port", "what is not secret is named")
	require.NotContains(t, err.Error(), "secret")
	_, err = db.ParseURL("mysql://u:secret@host/db")
	require.ErrorContains(t, err, "neither a URL that begins with postgres://")
}

// No error about a URL or keywords has four characters of the password in a row, whatever the password is; and where the
// address is taken, no part of the password is taken for something that later errors name.
func FuzzParseURLHidesPasswords(f *testing.F) {
	for _, password := range []string{"correct@horse", "battery/staple", "50%off#now", "a:b@c/d?e=f&g", "pass word'", "[::1]:99999", "x=y&sslmode=wrong", `\u0000`} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		// What an error says whatever the password is would be found in some passwords.
		const around = "user host dbname postgres://"
		for _, form := range []string{"postgres://uu:PASSWORD@hh.invalid/dd", "postgresql+psycopg://uu:PASSWORD@hh.invalid:5433/dd?sslmode=require", "postgres://hh.invalid/dd?user=uu&password=PASSWORD", "host=hh.invalid user=uu password=PASSWORD dbname=dd", "uu:PASSWORD@hh.invalid/dd"} {
			config, err := db.ParseURL(strings.Replace(form, "PASSWORD", password, 1))
			plain, plainErr := db.ParseURL(strings.Replace(form, "PASSWORD", "", 1))
			said := ""
			switch {
			case err != nil:
				said = err.Error()
			case form[:8] == "postgres" && !strings.Contains(form, "password="):
				said = config.ConnConfig.User + " " + config.ConnConfig.Host + " " + config.ConnConfig.Database
			}
			known := around + "uu hh.invalid dd"
			if plainErr != nil {
				known += plainErr.Error()
			} else {
				known += plain.ConnConfig.Database
			}
			_, unclear := db.ParseURL("postgres://u:a@b@c/d")
			_, neither := db.ParseURL("mysql://")
			_, values := db.ParseURL("postgres://h/d?password=a&sslmode=wrong")
			known += unclear.Error() + neither.Error() + values.Error()
			for at := 0; at+4 <= len(password); at++ {
				if part := password[at : at+4]; strings.Contains(said, part) {
					require.Contains(t, known, part, "%q of %q is in %q", part, password, said)
				}
			}
		}
	})
}
