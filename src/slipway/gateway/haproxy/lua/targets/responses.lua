-- Finds the pod that has a stored response by requesting it from the model's pods one after another.
--
-- Engines keep responses in their own memory, with IDs that they generate. Nothing is stored here, because the pods'
-- answers are the same for every gateway, and after its restart. Only the status of an answer is read.
-- Sets txn.endpoint to the pod's server, unless the model has less than two pods.
-- Loaded once in each thread. Keeps no state.

local MOST_PODS = 32      -- pods that are queried for one request
local TOTAL_SECONDS = 5   -- for all pods
local POD_SECONDS = 2     -- for one pod

local function clock()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

-- Returns the names of the servers that accept requests. Every gateway has the same order.
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

-- Whether the pod has the response. An unreachable pod does not have it.
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
