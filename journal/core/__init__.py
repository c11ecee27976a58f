"""The ground floor: records, values, errors, ports, clock and ids. No I/O, no tasks, nothing above it."""
