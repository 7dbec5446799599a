"""Decisions over HTTP: served, logged with their propensities, watched, and joined with rewards.

A decision goes down this list, and its answer comes back up once it is on disk::

    running    the process: uvicorn, and where its log goes
    app        the routes; http: requests and answers, access: whose token opens which
    messages   what is asked and answered, as JSON
    service    one campaign, served: joins the parts below
    worker     gathers requests into batches, and decides them
    deciding   draws actions and their propensities
    served     what serves: policy, pi0, items; a request's columns to a context
    writing    makes a batch durable: in the store, or in the journal while that is gone
    store      decisions, rewards and events on SQLite or PostgreSQL
    journal    what the store could not take, on this machine's disk

Beside that way::

    settings   what is declared when a campaign is served
    joining    decisions meet their rewards: for the monitor, and as logs of the next round
    monitor    watches what serves, epoch by epoch
    evidence   the tests that the monitor adds decisions to
    stops      stops and resumptions, remembered whatever happens
    metrics    counts and values of the moment, for Prometheus
"""
