"""Runs a method on real sites: Flower carries the messages, Undrift runs the rounds.

    spec.py         the operator's decisions, written by `undrift deploy init` and read by the server and every site
    handshake.py    finds out which sites are connected, before round 0 and when a site connects (again)
    node_names.py   which node may speak for which site
    envelope.py     a message: one JSON object and named arrays
    packing.py      orders and replies as envelopes: only declared values travel
    unpacking.py    and back: everything is checked on arrival
    claims.py       what a site says about its work, checked against its data and the plan
    cohort.py       a round's replies compared with each other
    codes.py        the codes of errors at a site; policy.py what a site agrees to
    sites.py        the engine: sends orders to sites, collects replies, enforces deadline and quorum
    evaluator.py    stages evaluated at the sites; L1 is sent with the next training order
    server.py       starts or resumes a run in its folder
    client.py       a site's reply to an envelope
    monitor.py      the run while it goes on: log, stream for alerts, who is awaited
    node.py         runs a site's SuperNode, and ends its processes with it
    from_run.py     what a deployment takes over from a simulation; site_template.py a site's data.py for it
    site_data.py    reads a site's image folders and tables, standardised as in the simulation
    proxy.py        the proxy that lets sites reach only Flower's Fleet API; app_hash.py the SHA-256 of an app
    site_store.py   a site's folder: states, logs, models; site_model.py opens the models without Flower
    wire.py         the only file that uses Flower's API

Importing this package does not need Flower. `wire.py` needs Flower, and `keys.py` the cryptography package it brings.
"""
