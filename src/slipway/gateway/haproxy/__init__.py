"""HAProxy: its configuration, Lua code, files, sockets and counters."""
