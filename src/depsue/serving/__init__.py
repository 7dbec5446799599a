"""Decisions over HTTP: served, logged with their propensities, watched, and joined with rewards.

::

    messages   what is asked and answered, as JSON
    contexts   a request's columns to a context
    served     what serves now: policy, pi0, items; from the campaign's ledger and files
    deciding   draws actions and their propensities
    store      decisions and rewards on SQLite or PostgreSQL; spool: while it is gone
    worker     decides, many requests at a time; writing: makes it durable before it is answered
    monitor    evidence against the promise, from decisions whose waiting time has closed
    service    all of it together; app: over HTTP; joining: logs for the next round
"""
