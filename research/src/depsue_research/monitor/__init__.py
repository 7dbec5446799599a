"""How often the monitor trips without cause, and how soon with one: a simulation."""
