"""The live page (`undrift watch`): runs, comparisons and deployments while they go on. It reads folders and changes nothing;
torch is not imported.

    locks.py       which runs a process works on now
    records.py     one run folder as a row: method, rounds, headline metric, state
    index.py       the runs and studies in the watched folders, looked at again and again
    runs_view.py   the four pages, as sections of report/page.py: all runs, run_view.py one run,
                   study_view.py a comparison or a preset, race_view.py a race, deployment_view.py a deployment
    labels.py      samples per client and class, in a process of its own
    guard.py       who may ask: Host header, token
    app.py         addresses and server-sent events; serve.py starts and ends the server
    live.js        puts what arrives into the page
"""
