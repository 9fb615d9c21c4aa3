"""Makes a release: archives that are built twice and compared, a bill of materials, checksums."""
