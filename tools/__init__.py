"""What an agent is given: tools and steps, their replay policies, probes, retries, and `io`."""
