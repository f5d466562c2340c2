-- Takes off a request's header Connection and those that it names: they are meant for the next hop only, which is us.
--
-- Only requests with such a header come here. The few that steer HAProxy itself, or carry the request, stay whatever it
-- says: else a client could take off our request id, or the length of its own body.
-- Loaded once in each thread; keeps no state.

local KEPT = {
    ["authorization"] = true, ["content-length"] = true, ["content-type"] = true, ["content-encoding"] = true,
    ["host"] = true, ["transfer-encoding"] = true, ["x-label-selector"] = true, ["x-request-id"] = true,
    ["close"] = true, ["connection"] = true,
}

local function drop_named(txn)
    for _, value in pairs(txn.http:req_get_headers()["connection"] or {}) do
        for name in value:lower():gmatch("[%w!#$%%&'*+.^_`|~-]+") do
            if not KEPT[name] then txn.http:req_del_header(name) end
        end
    end
    txn.http:req_del_header("connection")
end

core.register_action("drop_named", {"http-req"}, drop_named)
