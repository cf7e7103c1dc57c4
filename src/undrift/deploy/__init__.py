"""The same method on real sites: Flower carries the messages, Undrift does the rounds.

    spec.py         what an operator decided, written by `undrift deploy init`, the same on all sides
    roll.py         who is there: the handshake before round 0 and whenever a site (re)appears
    border.py       orders and replies as parcels: only what was declared travels, everything is checked on arrival
    sites.py        the engine: orders to sites, replies back, deadline and quorum
    judging.py      stages judged at the sites; L1 rides along with the next training order
    server.py       a run with its folder, started or gone on with
    client.py       a site's answer to a parcel; its folder, its states, its log, its models
    wire.py         the only file that knows Flower

Importing this package needs no Flower; only wire.py and keys.py do.
"""
