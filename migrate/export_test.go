package migrate

import "io/fs"

// WithFiles is the config with migrations of a test's own.
func WithFiles(config Config, files fs.FS) *Config {
	config.source = source{files: files}
	return &config
}

// Undeclared lists the migrations after the first release that do not say from which
// version on programs work with them.
func Undeclared(files fs.FS) (names []string, err error) {
	all, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range all[min(firstRelease, len(all)):] {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		if header, err := parseHeader(string(content)); err != nil || header.compatibleFrom == 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// firstRelease is the last migration that no program has ever worked without.
const firstRelease = 1

// NoTransaction is the header of a migration that runs outside of one.
const NoTransaction = headerMark + "no-transaction"
