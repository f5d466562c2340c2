-- Who sends a request, for limits that hold for each client: the subject of the token, the name of the API key, or the
-- source address.

local client = {}

-- A client has as many IPv6 addresses as it likes, but one network of 64 bits.
function client.of(txn)
    return txn:get_var("txn.holder") or txn:get_var("txn.key") or tostring(txn.c:ipmask(txn.f:src(), 32, 64))
end

return client
