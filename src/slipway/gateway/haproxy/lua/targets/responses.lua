-- Finds the pod that has a stored response, by asking the model's pods for it one after the other.
--
-- Engines keep responses in their own memory, under ids of their own. So nothing is written down here: what the pods say is
-- the same for every gateway, and after each of their restarts. Of an answer only the status is read.
-- Sets txn.endpoint to the pod's server; leaves it where the model has one pod, or none.
-- Loaded once in each thread; keeps no state.

local MOST_PODS = 32               -- pods that are asked for one request
local TOTAL_SECONDS = 5             -- for all of them
local POD_SECONDS = 2                -- seconds for one

local function clock()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

-- Names of the servers that take requests, in one order for every gateway.
local function list_servers(backend)
    local names = {}
    for name, server in pairs(backend.servers) do
        if name ~= "unanswered" and server:get_addr():sub(1, 1) ~= "/" and not server:is_draining() then
            names[#names + 1] = name
        end
    end
    table.sort(names)
    return names
end

-- Whether the pod knows the response. One that cannot be asked does not.
local function has_response(name, text)
    local host, port = name:match("^(.*):(%d+)$")
    local socket = core.tcp()
    socket:settimeout(POD_SECONDS)
    local status
    if host and socket:connect(host, tonumber(port)) and socket:send(text) then
        status = (socket:receive("*l") or ""):match("^HTTP/1%.[01] (%d%d%d)")
    end
    socket:close()
    return status ~= nil and status ~= "404"
end

local function find_response(txn)
    local backend = core.backends[txn:get_var("txn.be")]
    local names = backend and list_servers(backend) or {}
    if #names < 2 then return end
    local text = "GET /v1/responses/" .. txn:get_var("txn.response") .. " HTTP/1.1\r\nhost: engine\r\nx-request-id: "
        .. txn:get_var("txn.id") .. "\r\naccept-encoding: identity\r\nconnection: close\r\n\r\n"
    local deadline = clock() + TOTAL_SECONDS
    for number, name in ipairs(names) do
        if number > MOST_PODS or clock() > deadline then return end
        if has_response(name, text) then return txn:set_var("txn.endpoint", name) end
    end
end

core.register_action("find_response", {"http-req"}, find_response)
