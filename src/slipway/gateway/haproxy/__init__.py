"""HAProxy: its configuration, Lua, files, socket and counters."""
