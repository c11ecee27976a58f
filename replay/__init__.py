"""Pure functions from records to state, and the matcher that decides what happens to a call. No I/O."""
