"""Pages: the report of a campaign, the report of a plan, and the dashboard beside the service.

All of them render `depsue.campaigns.Story`, the one record of a campaign::

    words         the story in sentences, tiles and tables
    figures       what each figure shows; drawing: one description, drawn as SVG and by Plotly
    report        a campaign as one HTML page; plan_report: a plan as one
    dashboard     which page answers a path, and who may see it; sessions: who is logged in
    campaign      all campaigns, one campaign, stop and resume; live: what serves this minute
    certificate   one certificate, and computing it again
    planning      plan the next round; jobs: long work in the background
    rendering     templates, scripts and styles, from this server alone

Each page renders one frozen record, which is also its JSON twin: at the page's path with `.json`
on the dashboard, with `--json` from a command, in `plan.json` beside a plan.
"""
