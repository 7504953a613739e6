"""One file per library, imported only by its server."""
