package migrate

import "io/fs"

// WithFiles is the config with migrations of a test's own.
func WithFiles(config Config, files fs.FS) *Config {
	config.source = source{files: files}
	return &config
}

// NoTransaction is the first line of a migration that runs outside of one.
const NoTransaction = noTransaction
