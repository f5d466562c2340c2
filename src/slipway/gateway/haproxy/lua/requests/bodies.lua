-- Limits the memory of request bodies while they are received.
--
-- Only bodies that do not fit in an ordinary buffer come here. Each is counted before it gets a large buffer, with its
-- announced size (for a chunked body: the largest allowed size). An aborted request runs no further rules, so this file
-- cannot notice it. But its ticket is also the key of a stick table in which HAProxy itself counts: an entry that no
-- stream tracks belongs to an ended request, and an entry with a gpc to a complete body. When there is no room, tickets
-- are compared with the table. The count is therefore exact when it matters, and cheap.
--
-- If there is no room, a request waits briefly, with an ordinary buffer only, and then gets status 429. One client may
-- use half of the bytes, so that it cannot block all others.
--
-- Loaded once for all threads, so that the limits apply to the process. Arguments: maximum bytes of all bodies; largest
-- body; maximum bytes of HAProxy's buffers in use (0: no limit); size of a large buffer.

local most_bytes, largest, most_pooled, large_buffer = ...
most_bytes, largest = tonumber(most_bytes), tonumber(largest)
most_pooled, large_buffer = tonumber(most_pooled), tonumber(large_buffer)

local client_of = require("client").of
local refusals = require("refusals")

local WAIT = 5            -- seconds that a request waits for room
local POLL = 25           -- milliseconds between two checks
local QUEUE = 500         -- requests that may wait for room at the same time
local SWEEP = 0.1         -- seconds between two comparisons with the table, unless
local MANY_ARRIVED = 16   -- this many tickets arrived since the last one
local USUAL_AGE = 0.1     -- seconds for which HAProxy's number of used bytes is cached, because reading it is slow
local FULL_AGE = 0.005    -- the same if there was no room

local bodies = {}             -- ticket -> {size, client}
local bytes = 0
local bytes_of = {}   -- client -> bytes
local queue = {}      -- ticket -> true, for requests that wait for room
local queued = 0
local swept_at, arrived = 0, 0
local pooled, pooled_at = 0, 0   -- upper bound for the bytes of all used buffers, and when it was read
local refused = 0                -- number of refused requests

local function clock()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

local function free(ticket)
    local body = bodies[ticket]
    if not body then return end
    bodies[ticket] = nil
    bytes = bytes - body.size
    local remaining = bytes_of[body.client] - body.size
    bytes_of[body.client] = remaining > 0 and remaining or nil
end

local function leave_queue(ticket)
    if queue[ticket] then
        queue[ticket] = nil
        queued = queued - 1
    end
end

-- Removes the tickets of ended requests.
local function sweep(now)
    swept_at, arrived = now, 0
    local table = core.proxies.bodies.stktable
    for ticket in pairs(bodies) do
        local entry = table:lookup(ticket)
        if not entry or entry.conn_cur == 0 or entry.gpc0 > 0 then free(ticket) end
    end
    for ticket in pairs(queue) do
        local entry = table:lookup(ticket)
        if not entry or entry.conn_cur == 0 then leave_queue(ticket) end
    end
end

-- Whether HAProxy has room for another large buffer. Buffers allocated since the last reading are added here.
local function buffer_fits()
    if most_pooled == 0 then return true end
    local now = clock()
    if now - pooled_at > (pooled + large_buffer > most_pooled and FULL_AGE or USUAL_AGE) then
        pooled, pooled_at = core.get_info().PoolUsed_bytes, now
    end
    return pooled + large_buffer <= most_pooled
end

local function fits(client, size)
    local own = bytes_of[client] or 0
    return bytes + size <= most_bytes and (own == 0 or own + size <= most_bytes / 2)
        and buffer_fits()
end

local function has_room(client, size, now)
    if fits(client, size) then return true end
    if now - swept_at < SWEEP and arrived < MANY_ARRIVED then return false end
    sweep(now)
    return fits(client, size)
end

-- Waits for room. Returns whether there is.
local function wait_for_room(ticket, client, size)
    if fits(client, size) then return true end
    local now = clock()
    if has_room(client, size, now) then return true end
    if queued >= QUEUE then return false end
    queue[ticket] = true
    queued = queued + 1
    local deadline, has_space = now + WAIT, false
    while now < deadline and not has_space do
        core.msleep(POLL)
        now = clock()
        has_space = has_room(client, size, now)
    end
    leave_queue(ticket)
    return has_space
end

-- Returns the size to count. A chunked body may reach the largest allowed size.
local function announced_size(txn)
    return tonumber(txn.f:req_fhdr("content-length")) or largest
end

local function begin_body(txn)
    local ticket, client, size = txn:get_var("txn.ticket"), client_of(txn), math.min(announced_size(txn), largest)
    if not wait_for_room(ticket, client, size) then
        refused = refused + 1
        return refusals.answer(txn, "crowded")
    end
    arrived = arrived + 1
    pooled = pooled + large_buffer
    bodies[ticket] = {size = size, client = client}
    bytes = bytes + size
    bytes_of[client] = (bytes_of[client] or 0) + size
end

-- "show slipway bodies" on the command socket: number of bodies in progress, their bytes, refused requests.
local function show(applet)
    sweep(clock())
    local count = 0
    for _ in pairs(bodies) do count = count + 1 end
    applet:send(("%d %d %d\n"):format(count, bytes, refused))
end

core.register_action("begin_body", {"http-req"}, begin_body)
core.register_cli({"show", "slipway", "bodies"}, "show slipway bodies : large bodies that are being read", show)
