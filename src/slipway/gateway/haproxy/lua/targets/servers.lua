-- How many servers of a backend take requests: nbsrv also counts the one that those wait behind whose server died.
-- Loaded once in each thread; keeps no state.

core.register_converters("servers", function(backend)
    local proxy = core.backends[backend]
    return proxy and proxy:get_srv_act() or 0
end)
