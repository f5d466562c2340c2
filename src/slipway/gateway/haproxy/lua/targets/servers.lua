-- Registers the converter lua.servers, which returns how many servers of a backend accept requests. HAProxy's nbsrv
-- also counts the fallback server.
-- Loaded once in each thread. Keeps no state.

core.register_converters("servers", function(backend)
    local proxy = core.backends[backend]
    return proxy and proxy:get_srv_act() or 0
end)
