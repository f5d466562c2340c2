-- Holds requests for a model without a ready server until one is ready. Their number and time are limited.
--
-- Clients share the places. If all are taken, a client with more places than another loses its newest one to it. No
-- client can therefore block others, and a single client may use all places.
--
-- Sets txn.hold to: released, full, timeout, failed (no server will be ready without a change), left (the client
-- disconnected), or moved (a reload replaced this process, so the new process takes the request).
-- Loaded once for all threads, so that the limits apply to the process. Arguments: seconds to wait and places for each
-- model; the same for models that waiting requests scale from zero; the map of these models; the map of models whose
-- servers must not be used now; maximum bytes of all waiting bodies; host and port on which a new process would listen.

local hold_seconds, hold_places, wake_seconds, wake_places, wake_map, held_map, most_bytes, public_host, public_port = ...
most_bytes = tonumber(most_bytes)
local USUAL = {seconds = tonumber(hold_seconds), places = tonumber(hold_places)}
local WOKEN = {seconds = tonumber(wake_seconds), places = tonumber(wake_places)}

local client_of = require("client").of
local departures = require("departures")
local reasons = require("reasons")

local woken_backends = Map.new(wake_map, Map._str)
local held_backends = Map.new(held_map, Map._str)

local POLL = 20               -- milliseconds between two checks of the model's servers
local SLOW_POLL = 100         -- the same for requests that have waited longer than
local FAST_SECONDS = 3        -- seconds, after which slower polling adds little to the wait
local LEASE = 1               -- seconds without a check after which a place is free, because its client disconnected
local RELEASED_AT_ONCE = 16   -- requests released per poll and ready server, so that an engine does not get all at once

-- backend -> {count, places = {ticket -> {seen_at = time of the last check, size = bytes, client}}, counts = {client ->
-- places}, gate, passes}
local waiting = {}
local bytes_held = 0
local bytes_of = {}    -- client -> bytes of its waiting bodies
local displaced = {}   -- ticket -> true, for requests whose place went to another client
local totals = {}      -- backend -> {full, timeout, failed}: number of refused requests
local last_ticket = 0

local function clock()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

local function add(sums, client, change)
    local sum = (sums[client] or 0) + change
    sums[client] = sum > 0 and sum or nil
end

local function free(room, ticket)
    local place = room.places[ticket]
    if not place then return end
    room.places[ticket] = nil
    room.count = room.count - 1
    bytes_held = bytes_held - place.size
    add(room.counts, place.client, -1)
    add(bytes_of, place.client, -place.size)
end

-- Frees the places of requests that are gone.
local function sweep(room, now)
    for ticket, place in pairs(room.places) do
        if now - place.seen_at > LEASE then
            free(room, ticket)
            displaced[ticket] = nil
        end
    end
end

local function limits(backend)
    local woken = woken_backends:lookup(backend)
    if not woken then return USUAL end
    local seconds = tonumber(woken:match("^(%d+)s$"))   -- set by the route
    return seconds and {seconds = math.min(seconds, WOKEN.seconds), places = WOKEN.places} or WOKEN
end

-- Returns the client with the largest sum, and the sum.
local function find_largest(sums)
    local holder, most = nil, 0
    for client, sum in pairs(sums) do
        if sum > most then holder, most = client, sum end
    end
    return holder, most
end

-- Frees the newest place of a client with at least `least` bytes, in any of these rooms. Returns whether there was one.
local function displace(rooms, client, least)
    local newest, from = 0, nil
    for _, room in pairs(rooms) do
        for ticket, place in pairs(room.places) do
            if place.client == client and place.size >= least and ticket > newest then newest, from = ticket, room end
        end
    end
    if not from then return false end
    free(from, newest)
    displaced[newest] = true
    return true
end

-- Returns whether the room has a place for a client. If necessary, another client loses one.
local function make_place(room, places, client)
    if room.count < places then return true end
    local holder, most = find_largest(room.counts)
    return holder ~= nil and most > (room.counts[client] or 0) + 1 and displace({room}, holder, 0)
end

-- As make_place, for bytes.
local function make_space(client, size)
    while bytes_held + size > most_bytes do
        local holder, most = find_largest(bytes_of)
        if not holder or most <= (bytes_of[client] or 0) + size or not displace(waiting, holder, 1) then return false end
    end
    return true
end

local function take_place(backend, places, client, size, now)
    local room = waiting[backend]
    if not room then
        room = {count = 0, places = {}, counts = {}, passes = 0}
        waiting[backend] = room
    end
    if room.count >= places then sweep(room, now) end
    if bytes_held + size > most_bytes then
        for _, other in pairs(waiting) do sweep(other, now) end
    end
    if not make_space(client, size) or not make_place(room, places, client) then return nil end
    last_ticket = last_ticket + 1
    room.places[last_ticket] = {seen_at = now, size = size, client = client}
    room.count = room.count + 1
    bytes_held = bytes_held + size
    add(room.counts, client, 1)
    add(bytes_of, client, size)
    return room, last_ticket
end

local function leave_room(backend, room, ticket)
    free(room, ticket)
    displaced[ticket] = nil
    if room.count == 0 and waiting[backend] == room then waiting[backend] = nil end
end

-- Returns whether a request may be released. Each poll allows RELEASED_AT_ONCE requests per server. Unused ones remain
-- for requests that poll less often.
local function admit(room, servers, now)
    local share = RELEASED_AT_ONCE * servers
    local polls = room.gate and (now - room.gate) * 1000 / POLL or 1
    room.passes = math.min(room.passes + polls * share, share * SLOW_POLL / POLL)
    room.gate = now
    if room.passes < 1 then return false end
    room.passes = room.passes - 1
    return true
end

local function refuse(txn, backend, reason)
    local total = totals[backend] or {full = 0, timeout = 0, failed = 0}
    totals[backend] = total
    total[reason] = total[reason] + 1
    txn:set_var("txn.hold", reason)
end

local function cannot_start(backend)
    local _, final = reasons.of_backend(backend)
    return final
end

-- Returns how the wait ends; nil if it continues.
local function outcome(txn, backend, room, now, deadline)
    local proxy = not held_backends:lookup(backend) and core.backends[backend]   -- nil: Service deleted
    local servers = proxy and proxy:get_srv_act() or 0
    if servers > 0 and admit(room, servers, now) then return "released" end
    if servers == 0 and cannot_start(backend) then return "failed" end
    if now >= deadline then return "timeout" end
    return nil
end

-- Waiting requests in a stopping process: it gets no new servers. After a reload, a new process listens in its place
-- and takes the requests. If there is none, the gateway is shutting down, and the requests are refused so that clients
-- retry elsewhere.
local stopping, checked_at = false, 0

local function check_process(now)
    if now - checked_at >= 0.25 then
        stopping, checked_at = tonumber(core.get_info().Stopping) ~= 0, now
    end
    if not stopping then return nil end
    local probe = core.tcp()
    probe:settimeout(1)
    local listens = probe:connect(public_host, tonumber(public_port))
    probe:close()
    return listens and "moved" or "timeout"
end

local function hold(txn)
    -- If HAProxy itself notices that the client disconnected, it aborts this function and continues with the next rule.
    txn:set_var("txn.hold", "left")
    local backend = txn:get_var("txn.be")
    local started_at = clock()
    local room, ticket = take_place(backend, limits(backend).places, client_of(txn), txn.f:req_body_len(), started_at)
    if not room then return refuse(txn, backend, "full") end
    local connection = departures.watch(txn, started_at)
    local wait = txn:get_var("txn.wait")   -- if another target of the route may also answer
    local now, result, next_check, deadline = started_at, nil, started_at, nil
    repeat
        -- Without a place, this check was late, and the request is no longer counted.
        if room.places[ticket] then room.places[ticket].seen_at = now end
        if now >= next_check then
            next_check = now + 0.25
            deadline = started_at + (wait or limits(backend).seconds)
            result = check_process(now) or (departures.has_left(connection, now) and "left" or nil)
        end
        if displaced[ticket] then result = "full" end
        result = result or outcome(txn, backend, room, now, deadline)
        if not result then
            core.msleep(now - started_at < FAST_SECONDS and POLL or SLOW_POLL)
            now = clock()
        end
    until result
    leave_room(backend, room, ticket)
    if not wait and (result == "timeout" or result == "full" or result == "failed") then return refuse(txn, backend, result) end
    txn:set_var("txn.hold", result)
end

local function show_one(applet, backend)
    local room, total = waiting[backend], totals[backend] or {full = 0, timeout = 0, failed = 0}
    applet:send(("%s %d %d %d %d\n"):format(backend, room and room.count or 0, total.full, total.timeout, total.failed))
end

-- "show slipway hold" on the command socket: a line "backend waiting full timeout failed" for each model. With a
-- backend as argument: only its line, so that the cost does not depend on the others.
local function show(applet, ...)
    local now = clock()
    local words = {...}
    local last = words[#words]
    if last and last:find(":", 1, true) then
        if waiting[last] then sweep(waiting[last], now) end
        return show_one(applet, last)
    end
    local names = {}
    for backend, room in pairs(waiting) do
        sweep(room, now)
        names[backend] = true
    end
    for backend in pairs(totals) do names[backend] = true end
    for backend in pairs(names) do show_one(applet, backend) end
end

core.register_action("hold", {"http-req"}, hold)
core.register_cli({"show", "slipway", "hold"}, "show slipway hold : requests that wait for a model", show)
