-- The client of a request, for limits per client: the subject of the token, the name of the API key, or the source
-- address.

local client = {}

-- A client can use many IPv6 addresses, but all are in one /64 network.
function client.of(txn)
    return txn:get_var("txn.holder") or txn:get_var("txn.key") or tostring(txn.c:ipmask(txn.f:src(), 32, 64))
end

return client
