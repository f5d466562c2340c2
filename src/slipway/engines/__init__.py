"""Engines: the programs that run models. One file an engine, each a :class:`slipway.engines.engine.Engine`.

An engine knows its flags, ports, health path and log; it knows no API. Written once, it serves every API.
"""
