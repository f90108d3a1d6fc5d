"""The migrations, in order; run by `oncefence migrate` alone."""
