"""How often the monitor stops a policy without cause, and how soon with one: a simulation."""
