"""The intent/outcome protocol: journals, agents, turns, their calls, and the workers that carry them on."""
