-- Who sends a request, for limits that hold for each client: the name of the API key, else the address it comes from.

local client = {}

-- A client has as many IPv6 addresses as it likes, but one network of 64 bits.
function client.of(txn)
    return txn:get_var("txn.key") or tostring(txn.c:ipmask(txn.f:src(), 32, 64))
end

return client
