-- Keeps requests for a model without a ready server until one appears, bounded in number and time.
--
-- Places are shared among clients: where there is none left, one who has more than another has to give the newest of his to
-- the other. So nobody can shut others out, and who is alone may have all.
--
-- Sets txn.hold to: released, full, timeout, failed (no server will come without a change), left (the client went away),
-- or moved (a reload replaced this process: its successor takes the request).
-- Loaded once for all threads, so that the limits hold for the process. Arguments: seconds to wait and places for each
-- model; the same for models that are woken when requests wait; the map of these; the map of models whose servers are not
-- to be used yet, or no more; bytes that all waiting bodies may have; host and port on which a successor would listen.

local hold_seconds, hold_places, wake_seconds, wake_places, wake_map, held_map, most_bytes, public_host, public_port = ...
most_bytes = tonumber(most_bytes)
local USUAL = {seconds = tonumber(hold_seconds), places = tonumber(hold_places)}
local WOKEN = {seconds = tonumber(wake_seconds), places = tonumber(wake_places)}

local client_of = require("client").of
local departures = require("departures")
local reasons = require("reasons")

local woken_backends = Map.new(wake_map, Map._str)
local held_backends = Map.new(held_map, Map._str)

local POLL = 20               -- milliseconds between two looks at the model's servers
local SLOW_POLL = 100         -- the same for requests that wait for longer than
local FAST_SECONDS = 3                -- seconds: what takes so long already is not made slower by it
local LEASE = 1               -- seconds after which a place whose request was not seen is free: its client left
local RELEASED_AT_ONCE = 16   -- requests let go in one poll for each ready server, so that no engine meets the whole herd

-- backend -> {count, places = {ticket -> {seen = when it was seen last, size = bytes, client}}, counts = {client -> places},
-- gate, passes}
local waiting = {}
local bytes_held = 0
local bytes_of = {}           -- client -> bytes of his that are held
local displaced = {}          -- ticket -> true, of requests whose place another client got
local totals = {}             -- backend -> {full, timeout, failed}: how many were turned away
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
    local seconds = tonumber(woken:match("^(%d+)s$"))   -- the route's own
    return seconds and {seconds = math.min(seconds, WOKEN.seconds), places = WOKEN.places} or WOKEN
end

-- Who has most, and how much.
local function find_largest(sums)
    local holder, most = nil, 0
    for client, sum in pairs(sums) do
        if sum > most then holder, most = client, sum end
    end
    return holder, most
end

-- Takes the newest place of a client away, of those in these rooms that have at least so many bytes.
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

-- Whether there is a place in the room, taken from another client if need be.
local function make_place(room, places, client)
    if room.count < places then return true end
    local holder, most = find_largest(room.counts)
    return holder ~= nil and most > (room.counts[client] or 0) + 1 and displace({room}, holder, 0)
end

-- The same for bytes.
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

-- Lets RELEASED_AT_ONCE go for each server and poll; what no one took is kept for those that look less often.
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

-- The end of the wait, or nil: still waiting.
local function outcome(txn, backend, room, now, deadline)
    local proxy = not held_backends:lookup(backend) and core.backends[backend]   -- nil: its Service is gone, and may come back
    local servers = proxy and proxy:get_srv_act() or 0
    if servers > 0 and admit(room, servers, now) then return "released" end
    if servers == 0 and cannot_start(backend) then return "failed" end
    if now >= deadline then return "timeout" end
    return nil
end

-- What a process that was told to stop does with those who wait: it hears of no server any more. After a reload another
-- process listens in its place and takes them; one that only ends sends them away, to be tried elsewhere.
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
    -- Where HAProxy itself notices that the client left, it aborts this function and goes on with the next rule.
    txn:set_var("txn.hold", "left")
    local backend = txn:get_var("txn.be")
    local started_at = clock()
    local room, ticket = take_place(backend, limits(backend).places, client_of(txn), txn.f:req_body_len(), started_at)
    if not room then return refuse(txn, backend, "full") end
    local connection = departures.watch(txn, started_at)
    local wait = txn:get_var("txn.wait")   -- where another target of its route may answer, too
    local now, result, next_check, deadline = started_at, nil, started_at, nil
    repeat
        if room.places[ticket] then room.places[ticket].seen_at = now end   -- else it was slow to look, and is no longer counted
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

-- "show slipway hold" on the command socket: one line a model, "backend waiting full timeout failed". With a backend: only
-- its line, so that the cost does not grow with the others.
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
