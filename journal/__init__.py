"""durable-journal: the log that makes any AI-agent harness survive a crash."""
